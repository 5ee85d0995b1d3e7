package trackertest

import (
	"context"
	"errors"
	"runtime"
)

func failureCases() []testCase {
	const asNew = "After an error or a panic of fn the key is as if never taken"
	return []testCase{
		{"error", asNew + ", and the error is returned as fn made it.", errorCase},
		{"panic", asNew + ".", panicCase},
		{"goexit", asNew + "; a goroutine that ends in fn is no success either.", goexitCase},
		{"cut", "When the context ends while fn runs, the key is done if and only if Once returns nil.", cutCase},
		{"cut and failed", asNew + ", although the context has ended.", cutFailedCase},
	}
}

func errorCase(e *env) {
	key := e.key("a")
	for range 2 {
		runs, err := e.once(key, errNo)
		if runs != 1 || !errors.Is(err, errNo) {
			e.Fatalf("Once with a failing fn: ran %d times, error %v; want 1 and fn's", runs, err)
		}
		e.wantDone(key, false)
	}
	e.wantOnce(key, 1)
	e.wantDone(key, true)
}

func panicCase(e *env) {
	key := e.key("a")
	func() {
		defer func() { _ = recover() }()
		err := e.tracker.Once(e.op(), key, func(context.Context) error { panic("fn") })
		if err == nil {
			e.Errorf("Once with an fn that panics returns nil")
		}
	}()
	e.wantDone(key, false)
	e.wantOnce(key, 1)
}

func goexitCase(e *env) {
	key := e.key("a")
	ctx, done := e.op(), make(chan struct{})
	go func() {
		defer close(done)
		_ = e.tracker.Once(ctx, key, func(context.Context) error { runtime.Goexit(); return nil })
	}()
	<-done
	e.wantDone(key, false)
	e.wantOnce(key, 1)
}

func cutCase(e *env) {
	key := e.key("a")
	ctx, cancel := context.WithCancel(e.op())
	err := e.tracker.Once(ctx, key, func(context.Context) error {
		cancel()
		return nil
	})
	e.wantDone(key, err == nil)
}

func cutFailedCase(e *env) {
	key := e.key("a")
	ctx, cancel := context.WithCancel(e.op())
	err := e.tracker.Once(ctx, key, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return errNo
	})
	if !errors.Is(err, errNo) {
		e.Errorf("Once returned %v, want fn's error", err)
	}
	e.wantDone(key, false)
	e.wantOnce(key, 1)
}
