package cap

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// probe asks something that may hang, once at a time: who asks meanwhile gets
// the same answer. So many who ask cost no more than one, and a call that never
// returns is not made again.
type probe[T any] struct {
	limit time.Duration

	mu     sync.Mutex
	flight *flight[T]
}

type flight[T any] struct {
	done chan struct{}
	val  T
	err  error
}

var errNoAnswer = errors.New("no answer in time")

// ask returns the answer, or an error when ctx ends before.
func (p *probe[T]) ask(ctx context.Context, f func(ctx context.Context) (T, error)) (val T, err error) {
	p.mu.Lock()
	fl := p.flight
	if fl == nil {
		fl = &flight[T]{done: make(chan struct{})}
		p.flight = fl
		go p.fly(context.WithoutCancel(ctx), fl, f)
	}
	p.mu.Unlock()
	timer := time.NewTimer(p.limit + p.limit/10) // f should have returned by then
	defer timer.Stop()
	select {
	case <-fl.done:
		return fl.val, fl.err
	case <-timer.C:
		return val, errNoAnswer
	case <-ctx.Done():
		return val, fmt.Errorf("%w: %w", errNoAnswer, context.Cause(ctx))
	}
}

func (p *probe[T]) fly(ctx context.Context, fl *flight[T], f func(ctx context.Context) (T, error)) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			fl.err = fmt.Errorf("panic: %v", v)
		}
		p.mu.Lock()
		p.flight = nil
		p.mu.Unlock()
		close(fl.done)
	}()
	fl.val, fl.err = f(ctx)
}
