package gormstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

// refusedExpires is how long a refused record is kept when it does not say.
const refusedExpires = 15 * 24 * time.Hour

// Accept implements storage.Member. A record that the database refuses for its
// data is stored as failed, so that it does not hold up the others.
func (m *member) Accept(ctx context.Context, recs ...*storage.Record) ([]*storage.Record, error) {
	if len(recs) == 0 {
		return nil, nil
	}
	var inserted map[storage.ID]bool
	err := m.s.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		inserted = make(map[storage.ID]bool, len(recs))
		return m.insertAll(ctx, tx, recs, inserted)
	})
	if err != nil {
		return nil, m.failed("accept", err)
	}
	return among(recs, inserted), nil
}

func (m *member) insertAll(ctx context.Context, tx *sql.Tx, recs []*storage.Record, inserted map[storage.ID]bool) error {
	return batches(recs, sqliteRows, func(part []*storage.Record) error {
		return m.insert(ctx, tx, part, inserted)
	})
}

// insert halves a batch that is refused for its data down to the culprit.
func (m *member) insert(ctx context.Context, tx *sql.Tx, recs []*storage.Record, inserted map[storage.ID]bool) error {
	args := make([]any, 0, 13*len(recs))
	for _, r := range recs {
		args = append(args, m.inboxValues(r)...)
	}
	rows, err := tx.QueryContext(ctx, m.s.text.insertInbox(len(recs)), args...)
	if err == nil {
		err = readIDs(rows, inserted)
	}
	switch {
	case err == nil || !badData(err):
		return err
	case len(recs) > 1:
		half := len(recs) / 2
		if err := m.insert(ctx, tx, recs[:half], inserted); err != nil {
			return err
		}
		return m.insert(ctx, tx, recs[half:], inserted)
	case recs[0].Fault != "":
		return err
	}
	refused := *recs[0]
	refused.Fault = "the database refused the row: " + err.Error()
	refused.FaultCallback = true
	if refused.FaultExpires <= 0 {
		refused.FaultExpires = refusedExpires
	}
	if again := m.insert(ctx, tx, []*storage.Record{&refused}, inserted); again != nil {
		return errors.Join(err, again)
	}
	// It is not to be handled: Due shows it as final, with its callback owed.
	delete(inserted, refused.ID)
	return nil
}

// inboxValues are the values of a record, in the order of insertInbox.
func (m *member) inboxValues(r *storage.Record) []any {
	owner := ownerOf(m.number)
	if r.Subscriber == "" {
		owner = nil
	}
	var due, expires any = int64(0), nil
	status := storage.Scheduled
	if r.Fault != "" {
		status, expires = storage.Failed, microsUp(r.FaultExpires)
		if r.FaultCallback {
			owner = m.number
		} else {
			owner, due = nil, nil
		}
	}
	return []any{
		r.ID[:], m.version, r.Group, r.Subscriber, r.Topic, messageKey(r.MessageID), owner,
		bytesOf(r.Headers), bytesOf(r.Body), int64(status), storage.CleanError(r.Fault), due, expires,
	}
}

// among returns the records whose id is in the set, in their order.
func among(recs []*storage.Record, set map[storage.ID]bool) []*storage.Record {
	var out []*storage.Record
	for _, r := range recs {
		if set[r.ID] {
			out = append(out, r)
		}
	}
	return out
}

// Unmatched implements storage.Member.
func (m *member) Unmatched(ctx context.Context, groups []string, after int64, limit int) ([]*storage.Record, error) {
	r := reader{next: -1}
	for _, g := range groups {
		err := m.look(ctx, &r, m.s.text.unmatched(), m.version, g, after, max(limit, 1))
		if err != nil {
			return nil, m.failed("unmatched", err)
		}
	}
	slices.SortFunc(r.recs, func(a, b *storage.Record) int { return cmp.Compare(a.Position.Seq, b.Position.Seq) })
	return r.recs[:min(len(r.recs), max(limit, 1))], nil
}

// Split implements storage.Member.
func (m *member) Split(ctx context.Context, row *storage.Record, into ...*storage.Record) ([]*storage.Record, error) {
	if len(into) == 0 {
		return nil, m.failed("split", errors.New("there is nothing to put in the place of the row"))
	}
	inserted := make(map[storage.ID]bool, len(into))
	err := m.s.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		clear(inserted)
		res, err := tx.ExecContext(ctx, m.s.text.removeUnmatched(), row.ID[:], m.version)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
		return m.insertAll(ctx, tx, into, inserted)
	})
	if err != nil {
		return nil, m.failed("split", err)
	}
	return among(into, inserted), nil
}
