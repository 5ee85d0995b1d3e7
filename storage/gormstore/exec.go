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
func (s *Store) inTx(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	return s.untilFree(ctx, func() error {
		tx, err := s.writer.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // after Commit it does nothing
		if err := f(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// untilFree repeats f while it finds the database busy, with growing random
// waits, for at most busyBudget.
func (s *Store) untilFree(ctx context.Context, f func() error) error {
	start := time.Now()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := f()
		if err == nil || !busy(err) || time.Since(start) > busyBudget {
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

// execOne runs a statement in a transaction of its own, and reports whether it
// changed a row.
func (s *Store) execOne(ctx context.Context, query string, args ...any) (changed bool, err error) {
	err = s.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		changed = n > 0
		return err
	})
	return changed && err == nil, err
}
