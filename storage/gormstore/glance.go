package gormstore

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/capbus/gocap/storage"
)

var _ storage.Glancer = (*member)(nil)

// glancing is what one statement looks for. An empty list is not looked for.
type glancing struct {
	own, orphans, keys []storage.Lane
	groups             []string
}

// glancePlace says where, and for whom.
type glancePlace struct {
	box     storage.Box
	version string
	number  int64
}

// A glance answers with rows of five numbers, the first of which is one of:
const (
	glanceBeat      = iota // number, beat, lease, 1 if it has run out: a heartbeat
	glanceOwn              // microseconds until the first row of the member is due
	glanceOrphan           // an owner who does not live and has a due row; 0: nobody
	glanceBetween          // an owner between the known ones, see known
	glanceKey              // a row with a key
	glanceUnmatched        // an unmatched row
)

// sights is what the statements of a glance have seen.
type sights struct {
	storage.Glance

	beats   []heartbeat
	between []int64
}

// Glance implements storage.Glancer. It is storage.ErrLost when the member has
// ended, or its own lease has run out.
func (m *member) Glance(ctx context.Context, q storage.GlanceQuery) (storage.Glance, error) {
	orphans := q.Lanes
	if q.Locked {
		var err error
		if orphans, err = m.hold(ctx, q.Lanes); err != nil {
			return storage.Glance{}, m.failed("glance", err)
		}
	}
	all := glancing{own: q.Lanes, orphans: orphans, keys: q.Keys, groups: q.Groups}
	seen := storage.Glance{Next: -1}
	for all.some() {
		part := all.cut(lanesPer)
		err := m.s.untilFree(ctx, func() error {
			g, err := m.glance(ctx, part)
			if err == nil {
				seen.Merge(g)
			}
			return err
		})
		if err != nil {
			return storage.Glance{}, m.failed("glance", err)
		}
	}
	return seen, nil
}

func (g *glancing) some() bool {
	return len(g.own)+len(g.orphans)+len(g.keys)+len(g.groups) > 0
}

// cut takes up to n of each list off.
func (g *glancing) cut(n int) glancing {
	return glancing{own: front(&g.own, n), orphans: front(&g.orphans, n), keys: front(&g.keys, n), groups: front(&g.groups, n)}
}

func front[T any](list *[]T, n int) []T {
	n = min(n, len(*list))
	first := (*list)[:n:n]
	*list = (*list)[n:]
	return first
}

func (m *member) glance(ctx context.Context, g glancing) (storage.Glance, error) {
	before := time.Now()
	seen, err := m.s.d.glance(ctx, m.s.looks, glancePlace{m.box, m.version, m.number}, &m.known, g)
	if err != nil {
		return storage.Glance{}, err
	}
	dead, err := m.s.judge(seen.beats, m.number, before, time.Now())
	seen.Orphans = seen.Orphans || len(g.orphans) > 0 && len(dead) > 0
	return seen.Glance, err
}

// sights reads the answer of a glance.
func (q query) sights(ctx context.Context, db querier) (sights, error) {
	s := sights{Glance: storage.Glance{Next: -1}}
	err := q.each(ctx, db, func(rows *sql.Rows) error {
		var kind int
		var a, b, c, d int64
		if err := rows.Scan(&kind, &a, &b, &c, &d); err != nil {
			return err
		}
		switch kind {
		case glanceBeat:
			s.beats = append(s.beats, heartbeat{number: a, beat: b, lease: c, expired: d != 0})
		case glanceOwn:
			s.Merge(storage.Glance{Next: max(0, micros(a))})
		case glanceOrphan:
			s.Orphans = true
		case glanceBetween:
			s.between = append(s.between, a)
		case glanceKey:
			s.Keys = true
		case glanceUnmatched:
			s.Unmatched = true
		}
		return nil
	})
	return s, err
}

// known are owners of rows that former glances have seen, for a database that
// cannot hop over the living in one statement: it looks between these.
type known struct {
	mu    sync.Mutex
	alive []int64 // lived when they were seen
	gone  []int64 // did not: their rows are looked at
}

// mostKnown bounds the text of a statement.
const mostKnown = 64

// get returns all of them, sorted, and those whose rows are looked at.
func (k *known) get() (all, gone []int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all = slices.Concat(k.alive, k.gone)
	slices.Sort(all)
	return all, slices.Clone(k.gone)
}

// learn notes who lives, and who was found between the known ones. It reports
// whether there is nothing that the next statement would see beyond this one.
func (k *known) learn(beats []heartbeat, between []int64) (all bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := slices.Concat(k.alive, between)
	all, k.alive = len(between) == 0, nil
	for _, n := range seen {
		if slices.ContainsFunc(beats, func(b heartbeat) bool { return b.number == n }) {
			k.alive = append(k.alive, n)
		} else {
			k.gone, all = append(k.gone, n), false
		}
	}
	if len(k.alive)+len(k.gone) > mostKnown {
		k.alive, k.gone, all = nil, nil, false
	}
	return all
}
