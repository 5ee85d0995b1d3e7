package memqueue

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/capbus/gocap/transport"
)

// group is one queue and those who receive from it; guarded by the Queue's
// mutex.
type group struct {
	name      string
	patterns  map[string]struct{}
	receivers map[*receiver]struct{}
	queue     queue
	waiting   map[*item]struct{} // nacked, until their time has come
	linger    *time.Timer        // runs while there is no receiver
	single    bool               // only the receiver that came first gets deliveries
	joins     uint64             // receivers so far
}

// declare returns the group of a source, with its patterns added.
func (q *Queue) declare(src transport.Source) *group {
	g := q.groups[src.Group]
	if g == nil {
		g = &group{
			name:      src.Group,
			patterns:  make(map[string]struct{}),
			receivers: make(map[*receiver]struct{}),
			waiting:   make(map[*item]struct{}),
		}
		q.groups[src.Group] = g
	}
	g.single = g.single || src.Ordered
	for _, p := range src.Topics {
		g.patterns[p] = struct{}{}
	}
	return g
}

func (g *group) takes(topic string) bool {
	for p := range g.patterns {
		if transport.Match(p, topic) {
			return true
		}
	}
	return false
}

func (g *group) notify() {
	for r := range g.receivers {
		r.notify()
	}
}

// active reports whether a receiver gets deliveries.
func (g *group) active(r *receiver) bool {
	if !g.single {
		return true
	}
	for other := range g.receivers {
		if other.joined < r.joined {
			return false
		}
	}
	return true
}

// add appends a new copy of a message.
func (q *Queue) add(g *group, it *item) {
	q.seq++
	it.group, it.seq, it.place = g, q.seq, queued
	g.queue.push(it)
	g.notify()
}

// unanswered returns what the group holds and nobody has in hand.
func (g *group) unanswered() []*item {
	items := slices.Collect(maps.Keys(g.waiting))
	for it := g.queue.first; it != nil; it = it.next {
		items = append(items, it)
	}
	return items
}

// giveBack takes everything out of a receiver's hands, the newest first: so
// each finds its place at the front.
func (r *receiver) giveBack() {
	items := slices.SortedFunc(maps.Keys(r.inHand), func(a, b *item) int { return cmp.Compare(b.seq, a.seq) })
	for _, it := range items {
		it.requeue()
	}
}

// abandon is for a group that has lost its last receiver: nobody waits for it
// any longer, and it is forgotten unless a receiver comes within the linger
// time.
func (q *Queue) abandon(g *group) {
	g.refuseAll()
	if q.cfg.Linger < 0 {
		q.forget(g)
		return
	}
	q.startLinger(g)
}

// refuseAll ends the wait of every Send for this group.
func (g *group) refuseAll() {
	for _, it := range g.unanswered() {
		if it.sent != nil {
			it.sent.answer(errLeft(g.name))
		}
	}
}

func (q *Queue) startLinger(g *group) {
	g.stopLinger()
	if len(g.receivers) > 0 || q.cfg.Linger < 0 {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(q.cfg.Linger, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if g.linger == t {
			q.forget(g)
		}
	})
	g.linger = t
}

func (g *group) stopLinger() {
	if g.linger != nil {
		g.linger.Stop()
		g.linger = nil
	}
}

// forget removes a group without receivers and all that it holds.
func (q *Queue) forget(g *group) {
	g.stopLinger()
	delete(q.groups, g.name)
	g.refuseAll()
	for _, it := range g.unanswered() {
		it.detach()
	}
}
