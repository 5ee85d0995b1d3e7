package memstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/capbus/gocap/storage"
)

var _ storage.Glancer = (*member)(nil)

// Glance implements storage.Glancer. That members have died it finds out as
// TakeOver does, so there is never one left to declare.
func (m *member) Glance(ctx context.Context, q storage.GlanceQuery) (storage.Glance, error) {
	g := storage.Glance{Next: -1}
	if err := ctx.Err(); err != nil {
		return g, err
	}
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.bury(now)
	if m.ended {
		return g, fmt.Errorf("memstore: glance: member %d: %w", m.number, storage.ErrLost)
	}
	for _, lane := range q.Lanes {
		key := laneKey{m.in.Version, lane.Group, lane.Subscriber}
		if n := m.t.lanes[key][m.number].first(); n != nil {
			g.Merge(storage.Glance{Next: max(0, n.at-now)})
		}
		g.Orphans = g.Orphans || (!q.Locked || m.lock(lane, now)) && slices.ContainsFunc(m.orphans(lane, false), func(o *order) bool {
			return o.first().at <= now
		})
	}
	for _, lane := range q.Keys {
		g.Keys = g.Keys || len(m.t.keyed[laneKey{m.in.Version, lane.Group, lane.Subscriber}]) > 0
	}
	for _, group := range q.Groups {
		g.Unmatched = g.Unmatched || m.t.waiting[groupKey{m.in.Version, group}].first() != nil
	}
	return g, nil
}
