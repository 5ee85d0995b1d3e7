package sqlite

import (
	"container/list"
	"context"
	"sync"
)

// turns hands the writing connection round in the order in which it is asked
// for, which the waiting in database/sql does not; those who are urgent go
// before the others.
type turns struct {
	mu     sync.Mutex
	taken  bool
	queues [2]list.List // of chan struct{}, closed when it is that one's turn; the urgent ones first
}

// urgentKey marks a context whose writes are urgent.
type urgentKey struct{}

// take waits for the turn; give ends it.
func (t *turns) take(ctx context.Context) error {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return nil
	}
	q := &t.queues[1]
	if ctx.Value(urgentKey{}) != nil {
		q = &t.queues[0]
	}
	mine := make(chan struct{})
	place := q.PushBack(mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-mine: // at the same moment
		t.next()
	default:
		q.Remove(place)
	}
	return ctx.Err()
}

// give lets the next one have the turn.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next()
}

func (t *turns) next() {
	for i := range t.queues {
		if first := t.queues[i].Front(); first != nil {
			close(t.queues[i].Remove(first).(chan struct{}))
			return
		}
	}
	t.taken = false
}
