package rows

import (
	"time"

	"github.com/capbus/gocap/storage"
)

// laneKey tells which rows wait for the same workers. Those that owe their
// callback wait for that of others, not for a handler.
type laneKey struct {
	group, subscriber string
	final             bool
}

// lane is where rows of dead instances wait at the gate. Each has places of its
// own, so that long handlers of one subscription do not hold up the others.
type lane struct {
	key              laneKey
	suspects, loners []*Row // taken over once, and more often
	running          int    // suspects in their places
	alone            bool   // a loner is in its place
}

// place is what the gate knows of a row that it has let through. Its mutex
// guards it.
type place struct {
	gate   *gate
	lane   *lane       // whose place the row takes up; nil: none any more
	expiry *time.Timer // of the place, once the work has begun
	// claimed: takeovers + 1 may be in the table, and no outcome was given that
	// takes it off.
	claimed bool
}

// lane returns that of a row, and makes it where there is none.
func (g *gate) lane(r *Row) *lane {
	key := laneKey{group: r.Group, subscriber: r.Subscriber, final: r.Final}
	l := g.lanes[key]
	if l == nil {
		l = &lane{key: key}
		g.lanes[key] = l
	}
	return l
}

// tidy forgets a lane that has nothing left.
func (g *gate) tidy(l *lane) {
	if len(l.suspects)+len(l.loners)+l.running == 0 && !l.alone {
		delete(g.lanes, l.key)
	}
}

// enter notes that rows take up places of the lane, and are about to be claimed.
func (g *gate) enter(l *lane, batch []*Row) []*Row {
	for _, r := range batch {
		r.place = &place{gate: g, lane: l, claimed: true}
		g.under[r] = struct{}{}
	}
	return batch
}

// vacate frees the place of a row.
func (g *gate) vacate(r *Row) {
	l := r.place.lane
	switch {
	case l == nil:
		return
	case r.claim == alone:
		l.alone = false
	default:
		l.running--
	}
	r.place.lane = nil
	g.tidy(l)
}

// began tells that the work on rows begins now. One that has gone on for
// Probation did not kill its process at once, and frees its place: it may be as
// long again. The wait for a worker does not count, else more and more rows
// would wait there, claimed, and be charged with a death they had no part in.
func began(rs ...*Row) {
	for _, r := range rs {
		if r.place == nil {
			continue
		}
		g := r.place.gate
		g.mu.Lock()
		if r.place.lane != nil && r.place.expiry == nil {
			r.place.expiry = time.AfterFunc(g.desk.cfg.Probation, func() { g.passed(r) })
		}
		g.mu.Unlock()
	}
}

func (g *gate) passed(r *Row) {
	g.mu.Lock()
	g.vacate(r)
	g.mu.Unlock()
	signal(g.wake)
}

// expired ends the trial of a loner though it may go on, or wait for a worker:
// others' loners may start.
func (g *gate) expired(r *Row) {
	g.mu.Lock()
	if g.trial == r {
		g.trial = nil
	}
	g.mu.Unlock()
	signal(g.wake)
}

// ended tells that a row is no longer under way; it may be called for any row,
// and again.
func (g *gate) ended(r *Row) {
	if r.place == nil {
		return
	}
	g.mu.Lock()
	delete(g.under, r)
	g.vacate(r)
	if r.place.expiry != nil {
		r.place.expiry.Stop()
	}
	if g.trial == r {
		g.trial = nil
		g.expiry.Stop()
	}
	g.mu.Unlock()
	signal(g.wake)
}

// unclaim tells that an outcome of the row is given. It reports whether what
// its claim may have added to takeovers is still to be taken off.
func (g *gate) unclaim(r *Row) bool {
	if r.place == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	claimed := r.place.claimed
	r.place.claimed = false
	return claimed
}

// release takes off what was added to takeovers of all rows under way: their
// work was cut, and whoever does not return will not say so itself. Their
// outcomes, if they come, are stored all the same.
func (g *gate) release() {
	var cut []*Row
	g.mu.Lock()
	for r := range g.under {
		if r.place.claimed {
			r.place.claimed = false
			cut = append(cut, r)
		}
	}
	g.mu.Unlock()
	for _, r := range cut {
		g.desk.settler.add(settlement{
			row: r, outcome: storage.Outcome{ID: r.ID, Kind: storage.Release, Claimed: true}, early: true, done: func(bool) {},
		})
	}
}
