package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/capbus/gocap/storage"
)

// Heads implements storage.Member.
func (m *member) Heads(ctx context.Context, q storage.HeadQuery) ([]storage.Head, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(q.Keys) == 0 && q.Limit < 1 {
		return nil, fmt.Errorf("memstore: heads: %w", errLimit)
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	now := m.s.now()
	orders := m.t.keyed[laneKey{m.in.Version, q.Group, q.Subscriber}]
	keys, limit := unique(q.Keys), len(q.Keys)
	if limit == 0 {
		keys, limit = behind(orders, q.After), q.Limit
	}
	heads := make([]storage.Head, 0, min(limit, len(keys)))
	for _, key := range keys {
		n := orders[key].first()
		if n == nil {
			continue
		}
		if len(heads) == limit {
			break
		}
		heads = append(heads, storage.Head{
			Key: key, ID: n.row.ID, Owner: n.row.Owner, Living: m.s.lives(n.row.Owner), DueIn: n.row.due - now, Bytes: n.row.size(),
		})
	}
	return heads, nil
}

// behind returns the keys behind one, sorted.
func behind(orders map[string]*order, key string) []string {
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(orders)), func(k string) bool { return k <= key })
	slices.Sort(keys)
	return keys
}

// staleHeads takes the heads of subscriptions that nobody serves.
func (m *member) staleHeads(l *look, lane storage.Lane, limit int, take func(*row)) {
	for key, orders := range m.t.keyed {
		if key.version != m.in.Version || key.group != lane.Group || m.served(key, m.t.lanes[key]) {
			continue
		}
		for _, k := range behind(orders, "") {
			if limit <= 0 || l.full() {
				return
			}
			if r := orders[k].first().row; r.due <= l.now-l.q.Stale && !m.s.lives(r.Owner) {
				take(r)
				limit--
			}
		}
	}
}

// ordered reports whether another living member owns rows with a key of a
// subscription.
func (m *member) ordered(key laneKey) bool {
	for _, o := range m.t.keyed[key] {
		for n := o.first(); n != nil; n = n.next[0] {
			if owner := n.row.Owner; owner != m.number && m.s.lives(owner) {
				return true
			}
		}
	}
	return false
}
