package gormstore

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"
)

// busyBudget bounds how long a transaction of the store's own is tried again
// while other connections are in the way.
const busyBudget = 5 * time.Second

// inTx runs f in a transaction of the store's own, and again while the database
// is busy: f must not keep what it did in an earlier run.
func (s *Store) inTx(ctx context.Context, f func(ctx context.Context, tx conn) error) error {
	return s.untilFree(ctx, func() error {
		err := s.once(ctx, func(ctx context.Context, tx *sql.Tx) error { return f(ctx, tx) })
		return s.again(ctx, err, f)
	})
}

// again makes the careful run that err asks for.
func (s *Store) again(ctx context.Context, err error, f func(ctx context.Context, tx conn) error) error {
	if again := (*againError)(nil); errors.As(err, &again) {
		return s.once(ctx, func(ctx context.Context, tx *sql.Tx) error { return f(ctx, &carefulTx{tx}) })
	}
	return err
}

// inOne is as inTx, for an f that may be a single statement, which goes without
// a transaction where that is possible: it is a third of the round trips, and a
// process that freezes holds no lock on its rows.
func (s *Store) inOne(ctx context.Context, single bool, f func(ctx context.Context, tx conn) error) error {
	if !single || !s.d.alone() || !s.d.tells() {
		return s.inTx(ctx, f)
	}
	return s.untilFree(ctx, func() error { return s.again(ctx, f(ctx, s.pool), f) })
}

func (s *Store) once(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := s.writer.BeginTx(ctx, s.d.options())
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit it does nothing
	if err := f(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// carefulTx is the transaction of a second run, which takes the slow and safe
// way: the first one found that the fast one does not do.
type carefulTx struct{ *sql.Tx }

func careful(tx conn) bool {
	_, ok := tx.(*carefulTx)
	return ok
}

// againError asks for a second, careful run of a transaction.
type againError struct{ reason string }

func (e *againError) Error() string { return "a careful run is needed: " + e.reason }

// part runs one statement of several in a transaction, whose refusal for its
// data must not end the transaction.
func (s *Store) part(ctx context.Context, tx conn, f func() error) error {
	if !s.d.fragile() {
		return f()
	}
	if !careful(tx) {
		err := f()
		if err != nil && s.d.badData(err) {
			return &againError{err.Error()}
		}
		return err
	}
	if _, err := tx.ExecContext(ctx, `SAVEPOINT cap_part`); err != nil {
		return err
	}
	err := f()
	if err != nil {
		if _, undo := tx.ExecContext(ctx, `ROLLBACK TO SAVEPOINT cap_part`); undo != nil {
			return errors.Join(err, undo)
		}
	}
	_, release := tx.ExecContext(ctx, `RELEASE SAVEPOINT cap_part`)
	return errors.Join(err, release)
}

// untilFree repeats f while it finds the database busy, with growing random
// waits, for at most busyBudget.
func (s *Store) untilFree(ctx context.Context, f func() error) error {
	start := time.Now()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := f()
		if err == nil || !s.d.transient(err) || time.Since(start) > busyBudget {
			return err
		}
		t := time.NewTimer(wait/2 + rand.N(wait)) //nolint:gosec // jitter
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errors.Join(ctx.Err(), err)
		}
	}
}

// execOne runs a statement by itself, and returns how many rows it changed.
func (s *Store) execOne(ctx context.Context, q query) (n int64, err error) {
	f := func(ctx context.Context, tx conn) (err error) {
		n, err = q.changed(ctx, tx)
		return err
	}
	if s.d.alone() {
		err = s.untilFree(ctx, func() error { return f(ctx, s.pool) })
	} else {
		err = s.inTx(ctx, f)
	}
	return n, err
}
