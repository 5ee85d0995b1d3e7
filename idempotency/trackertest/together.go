package trackertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/capbus/gocap/idempotency"
)

func togetherCases() []testCase {
	const never = "A key in progress is ErrInProgress, or the call waits for the other's end; it is never nil."
	return []testCase{
		{"in progress", never, func(e *env) { progressCase(e, nil) }},
		{"in progress and failing", never, func(e *env) { progressCase(e, errNo) }},
		{"nested", "So is that of an enclosing Once, if fn passes its context on.", nestedCase},
		{"many", "Once takes the key: of many at once, one runs fn.", manyCase},
		{"others", "Keys do not wait for each other for good.", othersCase},
	}
}

// held is a Once whose fn waits.
type held struct {
	began   chan struct{}
	release chan error
	result  chan error
}

func (e *env) hold(key string) *held {
	e.Helper()
	h := &held{began: make(chan struct{}), release: make(chan error, 1), result: make(chan error, 1)}
	e.Cleanup(func() { // a case that has failed leaves no goroutine
		select {
		case h.release <- errNo:
		default:
		}
	})
	ctx := e.op()
	go func() {
		h.result <- e.tracker.Once(ctx, key, func(ctx context.Context) error {
			close(h.began)
			select {
			case err := <-h.release:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	select {
	case <-h.began:
	case err := <-h.result:
		e.Fatalf("Once of a new key did not run fn, and returned %v", err)
	case <-ctx.Done():
		e.Fatalf("Once of a new key did not run fn within %v", e.cfg.patience)
	}
	return h
}

// progressCase: one fn runs, and ends with outcome; another Once begins meanwhile.
func progressCase(e *env, outcome error) {
	key := e.key("a")
	first := e.hold(key)
	var ran atomic.Bool
	second, ctx := make(chan error, 1), e.op()
	go func() {
		second <- e.tracker.Once(ctx, key, func(context.Context) error { ran.Store(true); return nil })
	}()
	var err error
	answered := false
	select {
	case err = <-second:
		answered = true
		if !errors.Is(err, idempotency.ErrInProgress) {
			e.Errorf("Once while another runs returned %v, want ErrInProgress", err)
		}
	case <-time.After(e.cfg.moment): // it waits
	}
	if ran.Load() {
		e.Errorf("fn ran while another ran")
	}
	first.release <- outcome
	if err := <-first.result; !errors.Is(err, outcome) {
		e.Errorf("the first Once returned %v, want %v", err, outcome)
	}
	if !answered {
		err = <-second
		if again := outcome != nil; err == nil && ran.Load() != again {
			e.Errorf("Once that has waited: nil, ran %v, want %v", ran.Load(), again)
		} else if err != nil && ran.Load() {
			e.Errorf("Once that has waited ran fn and returned %v", err)
		}
	}
	if outcome == nil || ran.Load() {
		e.wantDone(key, true)
		e.wantOnce(key, 0)
	} else {
		e.wantOnce(key, 1)
	}
}

func nestedCase(e *env) {
	key := e.key("a")
	err := e.tracker.Once(e.op(), key, func(ctx context.Context) error {
		if err := e.tracker.Once(ctx, e.key("b"), func(context.Context) error { return nil }); err != nil {
			return fmt.Errorf("of another key: %w", err)
		}
		return e.tracker.Once(ctx, key, func(context.Context) error {
			e.Errorf("fn of a nested Once of the same key ran")
			return nil
		})
	})
	if !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("nested Once of the same key returned %v, want ErrInProgress", err)
	}
	e.wantOnce(key, 1)
}

// untilDone calls Once until it returns nil, and counts the runs of fn.
func (e *env) untilDone(ctx context.Context, key string, runs *atomic.Int32) error {
	for {
		err := e.tracker.Once(ctx, key, func(context.Context) error { runs.Add(1); return nil })
		if !errors.Is(err, idempotency.ErrInProgress) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

func manyCase(e *env) {
	const many = 32
	for round := range 3 {
		key := e.key(fmt.Sprint(round))
		var runs atomic.Int32
		var wg sync.WaitGroup
		ctx, begin := e.op(), make(chan struct{})
		for range many {
			wg.Go(func() {
				<-begin
				if err := e.untilDone(ctx, key, &runs); err != nil {
					e.Errorf("one of %d at once: %v", many, err)
				}
			})
		}
		close(begin)
		wg.Wait()
		if n := runs.Load(); n != 1 {
			e.Errorf("%d at once on one key: fn ran %d times, want 1", many, n)
		}
	}
}

func othersCase(e *env) {
	const keys, each = 8, 3
	var wg sync.WaitGroup
	ctx := e.op()
	runs := make([]atomic.Int32, keys)
	for i := range keys * each {
		wg.Go(func() {
			if err := e.untilDone(ctx, e.key(fmt.Sprint(i%keys)), &runs[i%keys]); err != nil {
				e.Errorf("key %d: %v", i%keys, err)
			}
		})
	}
	wg.Wait()
	for i := range runs {
		if n := runs[i].Load(); n != 1 {
			e.Errorf("key %d ran %d times, want 1", i, n)
		}
	}
}
