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

// Append implements storage.Writer. The context is looked at before the first
// statement, not during one: SQLite ends the whole transaction when a statement
// in it is interrupted, and ours takes microseconds.
func (w *writer) Append(ctx context.Context, recs ...*storage.Record) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("gormstore: append: %w", err)
	}
	if len(recs) == 0 {
		return nil
	}
	given, err := givenIDs(recs)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if err := w.inTransaction(ctx); err != nil {
		return err
	}
	if len(recs) == 1 || len(recs) <= sqliteRows && !given {
		n, err := w.insert(ctx, recs)
		if err != nil || n == int64(len(recs)) {
			return err
		}
		return storage.ErrDuplicate
	}
	return w.appendGuarded(ctx, recs)
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
	seen := make(map[storage.ID]bool, len(recs))
	for _, r := range recs {
		if seen[r.ID] {
			return true, fmt.Errorf("gormstore: append %s: twice in one call: %w", r.ID, storage.ErrDuplicate)
		}
		seen[r.ID] = true
	}
	return true, nil
}

// inTransaction refuses a transaction that SQLite has ended behind the back of
// the library that holds it: our row would be committed at once, by itself.
func (w *writer) inTransaction(ctx context.Context) error {
	_, err := w.exec.ExecContext(ctx, inTransaction)
	switch {
	case err == nil:
		_, err = w.exec.ExecContext(ctx, `ROLLBACK`)
		return errors.Join(fmt.Errorf("gormstore: append: %w: the database has rolled it back", storage.ErrTxDone), err)
	case isTxDone(err):
		return fmt.Errorf("gormstore: append: %w (%w)", storage.ErrTxDone, err)
	}
	if _, known := sqliteCode(err); known && !stillBegun(err) {
		return fmt.Errorf("gormstore: append: %w", err)
	}
	return nil
}

// appendGuarded undoes what it has inserted when there is a conflict.
func (w *writer) appendGuarded(ctx context.Context, recs []*storage.Record) error {
	if _, err := w.exec.ExecContext(ctx, appendSavepoint); err != nil {
		return fmt.Errorf("gormstore: append: %w", err)
	}
	err := w.insertAll(ctx, recs)
	if err != nil {
		if _, undo := w.exec.ExecContext(ctx, undoAppendSavepoint); undo != nil {
			return fmt.Errorf("gormstore: append: %w", errors.Join(err, storage.ErrTxDone, undo))
		}
	}
	if _, release := w.exec.ExecContext(ctx, releaseAppendSavepoint); release != nil {
		return fmt.Errorf("gormstore: append: %w", errors.Join(err, storage.ErrTxDone, release))
	}
	return err
}

func (w *writer) insertAll(ctx context.Context, recs []*storage.Record) error {
	for len(recs) > 0 {
		n := min(len(recs), sqliteRows)
		inserted, err := w.insert(ctx, recs[:n])
		if err != nil {
			return err
		}
		if inserted < int64(n) {
			return storage.ErrDuplicate
		}
		recs = recs[n:]
	}
	return nil
}

// insert runs one INSERT and returns how many records it inserted.
func (w *writer) insert(ctx context.Context, recs []*storage.Record) (int64, error) {
	skip := false
	args := make([]any, 0, 9*len(recs))
	for _, r := range recs {
		skip = skip || r.GivenID
		args = append(args, outboxValues(r)...)
	}
	res, err := w.s.hot.exec(ctx, w.exec, w.s.text.insertOutbox(len(recs), skip), args...)
	if err != nil {
		if isTxDone(err) {
			err = fmt.Errorf("%w (%w)", storage.ErrTxDone, err)
		}
		return 0, fmt.Errorf("gormstore: append: %w", err)
	}
	if !skip {
		return int64(len(recs)), nil
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("gormstore: append: %w", err)
	}
	return n, nil
}

// outboxValues are the values of a record, in the order of insertOutbox.
func outboxValues(r *storage.Record) []any {
	status, due := storage.Scheduled, any(nil)
	switch {
	case !r.DueAt.IsZero():
		status, due = storage.Delayed, r.DueAt.UnixMicro()
	case r.Delay > 0:
		status = storage.Delayed
	}
	return []any{
		r.ID[:], r.Version, r.Topic, ownerOf(r.Owner), bytesOf(r.Headers), bytesOf(r.Body),
		int64(status), due, microsUp(r.Delay),
	}
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
