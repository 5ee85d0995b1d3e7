package gormstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/capbus/gocap/storage"
)

// writer appends outbox records to a transaction.
type writer struct {
	s    *Store
	exec storage.Execer
}

func isTxDone(err error) bool { return errors.Is(err, sql.ErrTxDone) }

// Append implements storage.Writer. On SQLite the context is looked at before
// the first statement, not during one: it would end the whole transaction.
func (w *writer) Append(ctx context.Context, recs ...*storage.Record) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("gormstore: append: %w", err)
	}
	if len(recs) == 0 {
		return nil
	}
	if err := checkTopics(recs); err != nil {
		return fmt.Errorf("gormstore: append: %w", err)
	}
	given, err := givenIDs(recs)
	if err != nil {
		return err
	}
	if w.s.d.uncancelled() {
		ctx = context.WithoutCancel(ctx)
	}
	if err := w.append(ctx, recs, given); err != nil {
		return fmt.Errorf("gormstore: append: %w", w.s.txError(err))
	}
	return nil
}

func (w *writer) append(ctx context.Context, recs []*storage.Record, given bool) error {
	if err := w.s.d.probe(ctx, w.exec); err != nil {
		return err
	}
	if err := w.s.fits(recs); err != nil {
		return err
	}
	if len(recs) == 1 || !given && w.s.together(recs) == len(recs) {
		return w.insert(ctx, recs)
	}
	return w.appendGuarded(ctx, recs)
}

// maxName is the most bytes of a topic, and of every other name.
const maxName = 255

// checkTopics refuses, in every database alike, what some would cut.
func checkTopics(recs []*storage.Record) error {
	for _, r := range recs {
		if len(r.Topic) > maxName {
			return fmt.Errorf("message %s: its topic has %d bytes, at most %d are allowed", r.ID, len(r.Topic), maxName)
		}
	}
	return nil
}

// txError marks an error that says that the transaction has ended, or that its
// database has no tables.
func (s *Store) txError(err error) error {
	if s.d.missing(err) {
		return fmt.Errorf("%w: one is missing in the database of this transaction; "+
			"Start, or Migrate, of a bus makes them in that of its storage (%w)", ErrSchema, err)
	}
	if errors.Is(err, storage.ErrTxDone) || !isTxDone(err) && !s.d.ended(err) {
		return err
	}
	return fmt.Errorf("%w (%w)", storage.ErrTxDone, err)
}

// givenIDs reports whether an id came from the caller, and finds such an id
// twice in one call.
func givenIDs(recs []*storage.Record) (bool, error) {
	given := false
	for _, r := range recs {
		given = given || r.GivenID
	}
	if !given || len(recs) == 1 {
		return given, nil
	}
	seen := make(idSet, len(recs))
	for _, r := range recs {
		if seen[r.ID] {
			return true, fmt.Errorf("gormstore: append %s: twice in one call: %w", r.ID, storage.ErrDuplicate)
		}
		seen[r.ID] = true
	}
	return true, nil
}

// appendGuarded undoes what it has inserted when there is a conflict.
func (w *writer) appendGuarded(ctx context.Context, recs []*storage.Record) error {
	if _, err := w.exec.ExecContext(ctx, `SAVEPOINT cap_append`); err != nil {
		return err
	}
	err := w.s.byWeight(recs, func(part []*storage.Record) error { return w.insert(ctx, part) })
	if err != nil {
		if _, undo := w.exec.ExecContext(ctx, `ROLLBACK TO SAVEPOINT cap_append`); undo != nil {
			return errors.Join(err, storage.ErrTxDone, undo)
		}
	}
	if _, release := w.exec.ExecContext(ctx, `RELEASE SAVEPOINT cap_append`); release != nil {
		return errors.Join(err, storage.ErrTxDone, release)
	}
	return err
}

// insert runs one INSERT.
func (w *writer) insert(ctx context.Context, recs []*storage.Record) error {
	q := w.s.d.insertOutbox(recs)
	n, err := q.changed(ctx, w.s.hot.on(w.exec))
	switch {
	case err != nil && w.s.d.duplicate(err):
		return storage.ErrDuplicate
	case err != nil:
		return err
	case n < int64(len(recs)):
		return storage.ErrDuplicate
	}
	return nil
}

// startOf tells the first state of a record: when it is due, as a moment (nil:
// none given) and a wait, both in microseconds.
func startOf(r *storage.Record) (st storage.Status, due any, wait int64) {
	switch {
	case !r.DueAt.IsZero():
		return storage.Delayed, r.DueAt.UnixMicro(), 0
	case r.Delay > 0:
		return storage.Delayed, nil, microsUp(r.Delay)
	}
	return storage.Scheduled, nil, 0
}

// microsUp is a wait in microseconds, never shorter than asked for.
func microsUp(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	us := d.Microseconds()
	if d%time.Microsecond != 0 {
		us++
	}
	return us
}
