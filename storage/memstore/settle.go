package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/capbus/gocap/storage"
)

// Claim implements storage.Member.
func (m *member) Claim(ctx context.Context, recs ...*storage.Record) ([]*storage.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	now := m.s.now()
	var changed []*storage.Record
	for _, rec := range recs {
		r := m.t.rows[rec.ID]
		if r == nil || !r.open || r.Owner != m.number || !r.claim(now) {
			continue
		}
		changed = append(changed, m.s.read(r, now))
	}
	return changed, nil
}

// claim reports whether it changed the row. Nothing that it writes is indexed.
func (r *row) claim(now time.Duration) bool {
	changed := false
	if r.Status == storage.Delayed && r.due <= now {
		r.Status = storage.Scheduled
		changed = true
	}
	if r.Takeovers > 0 {
		r.Takeovers++
		changed = true
	}
	return changed
}

// Settle implements storage.Member.
func (m *member) Settle(ctx context.Context, outcomes ...storage.Outcome) ([]storage.ID, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, o := range outcomes {
		if err := checkOutcome(o); err != nil {
			return nil, err
		}
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	now := m.s.now()
	var lost []storage.ID
	for _, o := range outcomes {
		if !m.settle(o, now) {
			lost = append(lost, o.ID)
		}
	}
	return lost, nil
}

func checkOutcome(o storage.Outcome) error {
	if o.Kind < storage.Succeed || o.Kind > storage.Release {
		return fmt.Errorf("memstore: settle %v: no such outcome: %d", o.ID, o.Kind)
	}
	return nil
}

// owns says whether an outcome may be stored: the row is this member's and not
// final. Of a final row whose callback is owed, only that may go on.
func (m *member) owns(o storage.Outcome) bool {
	r := m.t.rows[o.ID]
	switch {
	case r == nil || !r.open || r.Owner != m.number:
		return false
	case r.Final:
		return o.Kind == storage.CallbackDone || o.Kind == storage.Release
	default:
		return o.Kind != storage.CallbackDone
	}
}

// settle reports whether the row was still this member's.
func (m *member) settle(o storage.Outcome, now time.Duration) bool {
	if !m.owns(o) {
		return false
	}
	r := m.t.rows[o.ID]
	if o.Kind == storage.Succeed && o.After < 0 {
		m.t.remove(r)
		return true
	}
	m.t.change(r, func() { r.settle(o, now) })
	return true
}

func (r *row) settle(o storage.Outcome, now time.Duration) {
	if o.Kind == storage.Release {
		if o.Claimed && r.Takeovers > 1 {
			r.Takeovers--
		}
		return
	}
	r.Takeovers = 0
	switch o.Kind {
	case storage.Succeed:
		r.finish(storage.Succeeded, now, o.After, false)
	case storage.Postpone:
		r.due = plus(now, o.After)
	case storage.Retry:
		r.Status, r.due = storage.Failed, plus(now, o.After)
		r.answered(o)
	case storage.Fail:
		r.finish(storage.Failed, now, o.After, o.Callback)
		r.answered(o)
	case storage.CallbackDone:
		r.open, r.Owner = false, 0
	}
}

// answered stores what a failed attempt has left.
func (r *row) answered(o storage.Outcome) {
	if o.Attempt > 0 {
		r.Retries = o.Attempt
	}
	if o.Error != "" {
		r.LastError = storage.CleanError(o.Error)
	}
}
