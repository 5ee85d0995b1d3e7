package gormstore

import (
	"context"
	"sync"
	"time"

	"github.com/capbus/gocap/storage"
)

// trailLife bounds how long looks go on from where the last one ended: then one
// starts anew, and finds what has been committed behind the mark, and the rows
// of other owners.
const trailLife = time.Second

// trails remember how far the taking of a large backlog has come, for each lane.
// The rows taken are still in the index on due times until a VACUUM, and a look
// from the start walks past all of them: the more have been taken, the longer.
type trails struct {
	mu sync.Mutex
	of map[place]trail
}

// trail says that this owner has more due rows in a lane, behind the mark.
type trail struct {
	owner int64
	mark  storage.Position
	ends  time.Time
}

// follow gives the lanes with a trail its mark, and returns where they lead; the
// rest has none.
func (t *trails) follow(lanes []storage.Lane) (marked []storage.Lane, on []pair, rest []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	marked = make([]storage.Lane, len(lanes))
	now := time.Now()
	for i, l := range lanes {
		marked[i] = l
		at, ok := t.of[place{l.Group, l.Subscriber}]
		if !ok || l.After != (storage.Position{}) || !now.Before(at.ends) {
			rest = append(rest, i)
			continue
		}
		marked[i].After = at.mark
		on = append(on, pair{lane: i, owner: at.owner, subscriber: l.Subscriber})
	}
	return marked, on, rest
}

// note leaves a trail in each lane that was filled by what was seen, and ends it
// in the others. marked is what follow made of the lanes given; kept, in order,
// is what is taken.
func (t *trails) note(given, marked []storage.Lane, seen []int, kept []candidate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := make(map[int]candidate, len(given))
	for _, c := range kept {
		last[c.lane] = c
	}
	for i, l := range given {
		key := place{l.Group, l.Subscriber}
		c, ok := last[i]
		if !ok || seen[i] < l.Limit || l.After != (storage.Position{}) {
			delete(t.of, key)
			continue
		}
		at := trail{owner: c.owner, mark: storage.Position{DueAt: time.UnixMicro(c.due), Seq: c.seq}, ends: time.Now().Add(trailLife)}
		if marked[i].After != (storage.Position{}) {
			at.ends = t.of[key].ends
		}
		if t.of == nil {
			t.of = map[place]trail{}
		}
		t.of[key] = at
	}
}

// alongTrails is candidates of lanes by their due times: first along their trails,
// and from the start in lanes that have none, or whose trail has ended.
func (m *member) alongTrails(ctx context.Context, db querier, q storage.Query, some bool) ([]candidate, error) {
	given := q.Lanes
	marked, on, rest := m.trails.follow(given)
	var found []candidate
	if some && len(on) > 0 {
		return append(found, candidate{pair: on[0]}), nil
	}
	seen := make([]int, len(given))
	q.Lanes = marked
	if err := m.walk(ctx, db, &found, q, on); err != nil {
		return nil, err
	}
	for _, c := range found {
		seen[c.lane]++
	}
	for _, p := range on {
		if seen[p.lane] < given[p.lane].Limit {
			marked[p.lane], seen[p.lane] = given[p.lane], 0
			rest = append(rest, p.lane)
		}
	}
	pairs, err := m.orphans(ctx, db, given, rest)
	if err != nil {
		return nil, err
	}
	if some {
		for _, p := range pairs {
			found = append(found, candidate{pair: p})
		}
		return found, nil
	}
	along := len(found)
	if err := m.walk(ctx, db, &found, q, pairs); err != nil {
		return nil, err
	}
	for _, c := range found[along:] {
		seen[c.lane]++
	}
	kept := withinLimits(found, q)
	m.trails.note(given, marked, seen, kept)
	return kept, nil
}

// orphans is orphanage of some of the lanes.
func (m *member) orphans(ctx context.Context, db querier, lanes []storage.Lane, which []int) ([]pair, error) {
	part := make([]storage.Lane, len(which))
	for i, lane := range which {
		part[i] = lanes[lane]
	}
	pairs, err := m.orphanage(ctx, db, storage.Query{Lanes: part})
	for i := range pairs {
		pairs[i].lane = which[pairs[i].lane]
	}
	return pairs, err
}
