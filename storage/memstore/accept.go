package memstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capbus/gocap/storage"
)

// Accept implements storage.Member. The records that it returns are those it
// was given, unchanged. A faulty record whose callback is owed is always owned
// by this member: it waits for no subscription.
func (m *member) Accept(ctx context.Context, recs ...*storage.Record) ([]*storage.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	fresh, err := m.accept(recs)
	if err != nil {
		return nil, fmt.Errorf("memstore: accept: %w", err)
	}
	return fresh, nil
}

// accept inserts all records that are not there yet, or none.
func (m *member) accept(recs []*storage.Record) ([]*storage.Record, error) {
	if !m.t.inbox {
		return nil, errors.New("the member owns rows of the outbox")
	}
	now := m.s.now()
	var (
		fresh []*storage.Record
		rows  []*row
		seen  = map[inboxKey]bool{}
		taken = map[storage.ID]bool{}
	)
	for _, rec := range recs {
		r := m.t.newRow(rec, now)
		r.MessageID = messageKey(r.MessageID)
		if r.Version == "" {
			r.Version = m.in.Version
		}
		if r.Version != m.in.Version {
			return nil, fmt.Errorf("record %v is of version %q, the member of %q", r.ID, r.Version, m.in.Version)
		}
		if m.t.keys[r.key()] != nil || seen[r.key()] {
			continue
		}
		if m.t.rows[r.ID] != nil || taken[r.ID] {
			return nil, fmt.Errorf("record %v: %w", r.ID, storage.ErrDuplicate)
		}
		seen[r.key()], taken[r.ID] = true, true
		m.own(r, rec, now)
		rows = append(rows, r)
		fresh = append(fresh, rec)
	}
	for _, r := range rows {
		m.t.insert(r)
	}
	return fresh, nil
}

// own gives a new row its owner, or makes it final.
func (m *member) own(r *row, rec *storage.Record, now time.Duration) {
	r.Owner = m.number
	switch {
	case rec.Fault != "":
		r.LastError = storage.CleanError(rec.Fault)
		r.finish(storage.Failed, now, rec.FaultExpires, rec.FaultCallback)
	case rec.Subscriber == "":
		r.Owner = 0
	}
}

// Split implements storage.Member. It takes an unmatched row whoever owns it:
// nothing has been done with it yet, and who would have settled it will find it
// gone.
func (m *member) Split(ctx context.Context, unmatched *storage.Record, into ...*storage.Record) ([]*storage.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(into) == 0 {
		return nil, fmt.Errorf("memstore: split %v: into nothing", unmatched.ID)
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	r := m.t.rows[unmatched.ID]
	if r == nil || !m.t.unmatched(r) || r.Version != m.in.Version {
		return nil, nil
	}
	m.t.remove(r)
	fresh, err := m.accept(into)
	if err != nil {
		m.t.insert(r)
		return nil, fmt.Errorf("memstore: split %v: %w", r.ID, err)
	}
	return fresh, nil
}
