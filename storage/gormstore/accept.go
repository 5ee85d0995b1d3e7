package gormstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	var inserted idSet
	err := m.s.inOne(ctx, m.s.together(recs) == len(recs), func(ctx context.Context, tx conn) error {
		inserted = make(idSet, len(recs))
		return m.insertAll(ctx, tx, recs, inserted)
	})
	if err != nil {
		return nil, m.failed("accept", err)
	}
	return among(recs, inserted), nil
}

// insertAll inserts in the order of the unique key, so that two who insert the
// same do not wait for each other crosswise; but records with an ordering key in
// the order given. That is the same for all who get them: one queue's.
func (m *member) insertAll(ctx context.Context, tx conn, recs []*storage.Record, inserted idSet) error {
	recs = slices.Clone(recs)
	slices.SortStableFunc(recs, func(a, b *storage.Record) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Subscriber, b.Subscriber),
			orderOfKeys(a, b))
	})
	return m.s.byWeight(recs, func(part []*storage.Record) error {
		return m.insert(ctx, tx, part, inserted)
	})
}

func orderOfKeys(a, b *storage.Record) int {
	switch {
	case a.Key == "" && b.Key == "":
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.MessageID, b.MessageID))
	case a.Key == "":
		return -1
	case b.Key == "":
		return 1
	}
	return 0
}

// insert halves a batch that is refused for its data down to the culprit.
func (m *member) insert(ctx context.Context, tx conn, recs []*storage.Record, inserted idSet) error {
	if err := m.s.fits(recs); err != nil && len(recs) == 1 {
		return m.refuse(ctx, tx, m.s.withoutBody(recs[0]), fmt.Errorf("%w; its body was not stored", err), inserted)
	}
	rows := make([]inboxRow, len(recs))
	for i, r := range recs {
		rows[i] = m.inboxRow(r)
	}
	err := m.s.part(ctx, tx, func() error { return m.s.d.insertInbox(ctx, tx, rows, inserted) })
	switch {
	case err == nil || !m.s.d.badData(err):
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
	return m.refuse(ctx, tx, *recs[0], fmt.Errorf("the database refused the row: %w", err), inserted)
}

// refuse inserts a record as failed, for the given reason, unless it was to be
// inserted as failed anyway.
func (m *member) refuse(ctx context.Context, tx conn, refused storage.Record, why error, inserted idSet) error {
	given := refused.Fault != ""
	if !given {
		refused.Fault, refused.FaultCallback = why.Error(), true
	}
	if refused.FaultExpires <= 0 {
		refused.FaultExpires = refusedExpires
	}
	if err := m.insert(ctx, tx, []*storage.Record{&refused}, inserted); err != nil {
		return errors.Join(why, err)
	}
	if !given {
		// It is not to be handled: Due shows it as final, with its callback owed.
		delete(inserted, refused.ID)
	}
	return nil
}

func (m *member) inboxRow(r *storage.Record) inboxRow {
	row := inboxRow{
		Record: r, version: m.version, key: messageKey(r.MessageID),
		owner: m.number, status: storage.Scheduled, due: true, keep: -1,
	}
	if r.Subscriber == "" {
		row.owner = 0
	}
	if r.Fault != "" {
		row.status, row.keep, row.fault = storage.Failed, microsUp(r.FaultExpires), storage.CleanError(r.Fault)
		if row.owner = m.number; !r.FaultCallback {
			row.owner, row.due = 0, false
		}
	}
	return row
}

// among returns the records whose id is in the set, in their order.
func among(recs []*storage.Record, set idSet) []*storage.Record {
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
		err := m.look(ctx, &r, m.s.d.unmatched(m.version, g, after, max(limit, 1)))
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
	inserted := make(idSet, len(into))
	err := m.s.inTx(ctx, func(ctx context.Context, tx conn) error {
		clear(inserted)
		n, err := m.s.d.removeUnmatched(m.version, row.ID).changed(ctx, tx)
		if err != nil || n == 0 {
			return err
		}
		return m.insertAll(ctx, tx, into, inserted)
	})
	if err != nil {
		return nil, m.failed("split", err)
	}
	return among(into, inserted), nil
}
