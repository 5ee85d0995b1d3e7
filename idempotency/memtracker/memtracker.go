// Package memtracker is an idempotency.Tracker in the memory of the process, for
// tests, and for services of one instance that may forget with a restart. It
// works inside a testing/synctest bubble.
package memtracker

import (
	"context"
	"sync"
	"time"

	"github.com/capbus/gocap/idempotency"
)

// Tracker remembers keys in memory. Make one with New; its methods may be called
// concurrently. It has no goroutine.
type Tracker struct {
	cfg Config
	err error // why it cannot be used

	mu      sync.Mutex
	running map[string]struct{}
	done    map[string]struct{}
	oldest  []entry // of done, in the order of their ends
}

type entry struct {
	key string
	end time.Time
}

var _ idempotency.Tracker = (*Tracker)(nil)

// New returns an empty Tracker. It does not fail: every method reports what is
// wrong with cfg.
func New(cfg Config) *Tracker {
	t := &Tracker{cfg: cfg, err: cfg.Validate(), running: map[string]struct{}{}, done: map[string]struct{}{}}
	if t.cfg.Retention == 0 {
		t.cfg.Retention = DefaultRetention
	}
	return t
}

// HasProcessed implements idempotency.Tracker.
func (t *Tracker) HasProcessed(ctx context.Context, key string) (bool, error) {
	if err := t.usable(ctx, key); err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isDone(key), nil
}

// MarkAsProcessed implements idempotency.Tracker.
func (t *Tracker) MarkAsProcessed(ctx context.Context, key string) error {
	if err := t.usable(ctx, key); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mark(key)
	return nil
}

// Once implements idempotency.Tracker. It does not wait: a key in progress is
// ErrInProgress.
func (t *Tracker) Once(ctx context.Context, key string, fn func(ctx context.Context) error) error {
	if err := t.usable(ctx, key); err != nil {
		return err
	}
	if fresh, err := t.take(key); !fresh {
		return err
	}
	ok := false
	defer func() { t.end(key, ok) }() // also when fn panics, or ends its goroutine
	if err := fn(ctx); err != nil {
		return err
	}
	ok = true
	return nil
}

func (t *Tracker) take(key string) (fresh bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isDone(key) {
		return false, nil
	}
	if _, ok := t.running[key]; ok {
		return false, idempotency.ErrInProgress
	}
	t.running[key] = struct{}{}
	return true, nil
}

func (t *Tracker) end(key string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, key)
	if ok {
		t.mark(key)
	}
}

// isDone forgets what has expired first; t.mu is held.
func (t *Tracker) isDone(key string) bool {
	now := time.Now()
	n := 0
	for ; n < len(t.oldest) && !now.Before(t.oldest[n].end); n++ {
		delete(t.done, t.oldest[n].key)
	}
	t.oldest = t.oldest[n:]
	_, ok := t.done[key]
	return ok
}

// mark is called with t.mu held.
func (t *Tracker) mark(key string) {
	if t.isDone(key) {
		return
	}
	t.done[key] = struct{}{}
	t.oldest = append(t.oldest, entry{key, time.Now().Add(t.cfg.Retention)})
}

func (t *Tracker) usable(ctx context.Context, key string) error {
	switch {
	case t.err != nil:
		return t.err
	case key == "":
		return idempotency.ErrNoKey
	}
	return ctx.Err()
}
