package rows

import (
	"container/list"
	"context"
	"sync"
)

// Queue is where rows in hand wait to be worked on, in one line a key. The
// lines take turns, and within a line rows that were tried before take turns
// with those that were not, so that neither a long line nor always failing rows
// hold up the others. Rows of dead instances, few at once, go before all: what
// they cost if this process dies is written already, and each moment that they
// wait, it may die for other reasons. It holds no more than the engine has in
// hand. Safe for concurrent use.
type Queue[K comparable] struct {
	limit func(K) int

	mu    sync.Mutex
	some  *sync.Cond
	lines map[K]*line[K]
	ring  *list.List // lines that have rows
}

type line[K comparable] struct {
	key          K
	doubted      []*Row // claimed, because their process has died
	fresh, again []*Row
	turn         bool // the next one is of again, if there is one
	running      int
	place        *list.Element // in the ring; nil: no rows wait
}

// NewQueue returns an empty queue. limit says how many runs a key may have at
// once.
func NewQueue[K comparable](limit func(K) int) *Queue[K] {
	q := &Queue[K]{limit: limit, lines: map[K]*line[K]{}, ring: list.New()}
	q.some = sync.NewCond(&q.mu)
	return q
}

// Add puts a row at the end of a line.
func (q *Queue[K]) Add(key K, r *Row) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[key]
	if l == nil {
		l = &line[K]{key: key}
		q.lines[key] = l
	}
	if r.claim >= suspect {
		l.doubted = append(l.doubted, r)
	} else if r.Retries > 0 {
		l.again = append(l.again, r)
	} else {
		l.fresh = append(l.fresh, r)
	}
	if l.place == nil {
		l.place = q.ring.PushBack(l)
	}
	q.some.Signal()
}

// Next waits for rows and takes up to n of one line and one tenure. The run
// that begins so ends with Done. It reports false when ctx has ended.
func (q *Queue[K]) Next(ctx context.Context, n int) (key K, rs []*Row, ok bool) {
	key, rs, ok = q.next(ctx, n)
	began(rs...)
	return key, rs, ok
}

func (q *Queue[K]) next(ctx context.Context, n int) (key K, rs []*Row, ok bool) {
	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.some.Broadcast()
	})
	defer stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	for ctx.Err() == nil {
		if l := q.free(); l != nil {
			rs = l.take(n)
			l.running++
			q.ring.MoveToBack(l.place)
			if len(l.doubted)+len(l.fresh)+len(l.again) == 0 {
				q.ring.Remove(l.place)
				l.place = nil
			}
			return l.key, rs, true
		}
		q.some.Wait()
	}
	q.some.Signal() // one that was meant for this call must not be lost
	return key, nil, false
}

func (q *Queue[K]) free() *line[K] {
	var first *line[K]
	for e := q.ring.Front(); e != nil; e = e.Next() {
		l := e.Value.(*line[K]) //nolint:forcetypeassert // only lines are put in
		if l.running >= max(1, q.limit(l.key)) {
			continue
		}
		if len(l.doubted) > 0 {
			return l
		}
		if first == nil {
			first = l
		}
	}
	return first
}

func (l *line[K]) take(n int) []*Row {
	var rs []*Row
	for len(rs) < n {
		from := &l.fresh
		switch {
		case len(l.doubted) > 0:
			from = &l.doubted
		case len(l.fresh) == 0 || l.turn && len(l.again) > 0:
			from = &l.again
		}
		if len(*from) == 0 || len(rs) > 0 && (*from)[0].Tenure != rs[0].Tenure {
			break
		}
		rs = append(rs, (*from)[0])
		(*from)[0] = nil
		if *from = (*from)[1:]; len(*from) == 0 {
			*from = nil
		}
		l.turn = !l.turn
	}
	return rs
}

// Done ends a run that Next began.
func (q *Queue[K]) Done(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[key]
	l.running--
	if l.running == 0 && l.place == nil {
		delete(q.lines, key)
	}
	q.some.Signal()
}

// Empty takes all rows that wait.
func (q *Queue[K]) Empty() []*Row {
	q.mu.Lock()
	defer q.mu.Unlock()
	var rs []*Row
	for e := q.ring.Front(); e != nil; e = q.ring.Front() {
		l := e.Value.(*line[K]) //nolint:forcetypeassert // only lines are put in
		rs = append(append(append(rs, l.doubted...), l.fresh...), l.again...)
		l.doubted, l.fresh, l.again, l.place = nil, nil, nil, nil
		q.ring.Remove(e)
		if l.running == 0 {
			delete(q.lines, l.key)
		}
	}
	return rs
}
