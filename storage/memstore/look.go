package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

var errLimit = errors.New("limit is below 1")

// look collects what a query reads.
type look struct {
	q     storage.Query
	now   time.Duration
	rows  []*row
	bytes int
}

// full says that the query must read no more rows.
func (l *look) full() bool { return l.q.MaxBytes > 0 && l.bytes > l.q.MaxBytes }

func (l *look) add(r *row) {
	l.rows = append(l.rows, r)
	l.bytes += r.size()
}

// lane reads due rows from several orders at once, in order of due time. The
// rows that are read may leave their order meanwhile.
func (l *look) lane(orders []*order, from pos, limit int, add func(*row)) {
	upTo := endOf(l.now - max(l.q.Stale, 0))
	heads := make([]*node, 0, len(orders))
	for _, o := range orders {
		if n := o.behind(from); n != nil {
			heads = append(heads, n)
		}
	}
	for ; limit > 0 && !l.full() && len(heads) > 0; limit-- {
		i := 0
		for j := range heads {
			if heads[j].before(heads[i].pos) {
				i = j
			}
		}
		n := heads[i]
		if !n.before(upTo) {
			return
		}
		if heads[i] = n.next[0]; heads[i] == nil {
			heads = slices.Delete(heads, i, i+1)
		}
		add(n.row)
	}
}

// from turns the cursor of a lane into a place.
func (s *Store) from(p storage.Position) pos {
	if p == (storage.Position{}) {
		return start
	}
	return pos{at: s.moment(p.DueAt), seq: p.Seq}
}

// records makes records of rows, in order of due time over all lanes.
func (l *look) records(s *Store) []*storage.Record {
	slices.SortStableFunc(l.rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq))
	})
	recs := make([]*storage.Record, len(l.rows))
	for i, r := range l.rows {
		recs[i] = s.read(r, l.now)
	}
	return recs
}

func checkLanes(q storage.Query) error {
	for _, lane := range q.Lanes {
		if lane.Limit < 1 {
			return fmt.Errorf("memstore: lane of group %q: %w", lane.Group, errLimit)
		}
	}
	return nil
}

// Due implements storage.Member. The row that makes the sum exceed MaxBytes is
// the last one read.
func (m *member) Due(ctx context.Context, q storage.Query) ([]*storage.Record, time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if err := checkLanes(q); err != nil {
		return nil, 0, err
	}
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &look{q: q, now: s.now()}
	l.q.Stale = 0
	if len(q.IDs) > 0 {
		for _, id := range unique(q.IDs) {
			if r := m.t.rows[id]; r != nil && r.open && r.Owner == m.number {
				l.rows = append(l.rows, r)
			}
		}
		return l.records(s), -1, nil
	}
	next := time.Duration(-1)
	for _, lane := range q.Lanes {
		o := m.t.lanes[laneKey{m.in.Version, lane.Group, lane.Subscriber}][m.number]
		l.lane([]*order{o}, s.from(lane.After), lane.Limit, l.add)
		if n := o.behind(endOf(l.now)); n != nil && (next < 0 || n.at-l.now < next) {
			next = n.at - l.now
		}
	}
	return l.records(s), next, nil
}

// TakeOver implements storage.Member.
func (m *member) TakeOver(ctx context.Context, q storage.Query) ([]*storage.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkLanes(q); err != nil {
		return nil, err
	}
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &look{q: q, now: s.now()}
	s.bury(l.now)
	if m.ended {
		return nil, fmt.Errorf("memstore: take over: member %d: %w", m.number, storage.ErrLost)
	}
	take := func(r *row) {
		m.take(r)
		l.add(r)
	}
	if len(q.IDs) > 0 {
		for _, id := range unique(q.IDs) {
			if r := m.t.rows[id]; r != nil && r.open && r.Version == m.in.Version && !s.lives(r.Owner) {
				take(r)
			}
		}
		return l.records(s), nil
	}
	for _, lane := range q.Lanes {
		if q.Locked && !m.lock(lane, l.now) {
			continue
		}
		before := len(l.rows)
		l.lane(m.orphans(lane, q.Stale > 0), s.from(lane.After), lane.Limit, take)
		if q.Stale > 0 {
			m.staleHeads(l, lane, lane.Limit-(len(l.rows)-before), take)
		}
	}
	return l.records(s), nil
}

// take makes a row this member's.
func (m *member) take(r *row) {
	m.t.change(r, func() {
		if from := m.s.members[r.Owner]; from != nil && from.died && r.Takeovers == 0 {
			r.Takeovers = 1
		}
		r.Owner = m.number
	})
}

// orphans returns the rows of a lane that have no living owner, an order each
// owner. With group, of every subscriber of its group.
func (m *member) orphans(lane storage.Lane, group bool) []*order {
	want := laneKey{m.in.Version, lane.Group, lane.Subscriber}
	var orders []*order
	add := func(owners map[int64]*order) {
		for owner, o := range owners {
			if !m.s.lives(owner) {
				orders = append(orders, o)
			}
		}
	}
	if !group {
		add(m.t.lanes[want])
		return orders
	}
	for key, owners := range m.t.lanes {
		if key.version == want.version && key.group == want.group && !m.served(key, owners) {
			add(owners)
		}
	}
	return orders
}

// served reports whether another living member works on a subscription.
func (m *member) served(key laneKey, owners map[int64]*order) bool {
	if key.subscriber == "" {
		return false
	}
	for owner, o := range owners {
		if owner != m.number && o.count > 0 && m.s.lives(owner) {
			return true
		}
	}
	return m.ordered(key)
}

// Unmatched implements storage.Member.
func (m *member) Unmatched(ctx context.Context, groups []string, after int64, limit int) ([]*storage.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if limit < 1 {
		return nil, fmt.Errorf("memstore: unmatched: %w", errLimit)
	}
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	var rows []*row
	for _, group := range unique(groups) {
		n := m.t.waiting[groupKey{m.in.Version, group}].behind(pos{seq: after})
		for i := 0; n != nil && i < limit; i++ {
			rows = append(rows, n.row)
			n = n.next[0]
		}
	}
	slices.SortFunc(rows, func(a, b *row) int { return cmp.Compare(a.seq, b.seq) })
	rows = rows[:min(limit, len(rows))]
	now := s.now()
	recs := make([]*storage.Record, len(rows))
	for i, r := range rows {
		recs[i] = s.read(r, now)
	}
	return recs, nil
}

// unique returns the values without repetitions.
func unique[T comparable](in []T) []T {
	seen := make(map[T]struct{}, len(in))
	out := make([]T, 0, len(in))
	for _, v := range in {
		if _, twice := seen[v]; !twice {
			seen[v] = struct{}{}
			out = append(out, v)
		}
	}
	return out
}
