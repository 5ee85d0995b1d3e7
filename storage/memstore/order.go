package memstore

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"time"
)

// pos is a place in an order of rows: a moment (due time or expiry, whatever
// the order is made for), then the sequence number.
type pos struct {
	at  time.Duration
	seq int64
}

func (p pos) before(q pos) bool { return p.at < q.at || p.at == q.at && p.seq < q.seq }

// start lies before every place, and endOf(at) behind all places of a moment.
var start = pos{at: math.MinInt64, seq: math.MinInt64} //nolint:gochecknoglobals // a constant

func endOf(at time.Duration) pos { return pos{at: at, seq: math.MaxInt64} }

const maxHeight = 24

// order keeps rows sorted: a skip list. A nil order is empty.
type order struct {
	head  [maxHeight]*node
	count int
}

type node struct {
	pos
	row  *row
	next []*node
}

// path finds, on every level, the link that leads behind p's predecessors.
func (o *order) path(p pos) (links [maxHeight]*[]*node, level0 *node) {
	at := o.head[:]
	prev := &at
	for l := maxHeight - 1; l >= 0; l-- {
		for n := (*prev)[l]; n != nil && n.before(p); n = (*prev)[l] {
			prev = &n.next
		}
		links[l] = prev
	}
	return links, (*prev)[0]
}

func (o *order) insert(p pos, r *row) {
	height := min(1+bits.TrailingZeros64(rand.Uint64()), maxHeight) //nolint:gosec // not a secret
	links, _ := o.path(p)
	n := &node{pos: p, row: r, next: make([]*node, height)}
	for l := range height {
		n.next[l] = (*links[l])[l]
		(*links[l])[l] = n
	}
	o.count++
}

// remove takes out the row at p. The links of its node stay as they were, so
// that a walk may remove the node that it stands on.
func (o *order) remove(p pos) {
	links, n := o.path(p)
	if n == nil || n.pos != p {
		return
	}
	for l := range n.next {
		(*links[l])[l] = n.next[l]
	}
	o.count--
}

func (o *order) first() *node {
	if o == nil {
		return nil
	}
	return o.head[0]
}

// behind returns the first node whose place is behind p.
func (o *order) behind(p pos) *node {
	if o == nil {
		return nil
	}
	_, n := o.path(p)
	if n != nil && n.pos == p {
		return n.next[0]
	}
	return n
}
