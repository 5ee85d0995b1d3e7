package wmadapter

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// maxStrays is the most calls into foreign code that have not returned in time.
const maxStrays = 100

// call runs foreign code in a goroutine of its own and waits for it, until ctx or
// the time is over. Then it is a stray: it may go on for ever, and is counted for
// as long as it does. A panic is an error.
func (t *Transport) call(ctx context.Context, limit time.Duration, what string, f func() error) error {
	if n := t.strays.Add(1); n > maxStrays {
		t.strays.Add(-1)
		return fmt.Errorf("%s: %d calls have not returned; the process needs a restart", what, n-1)
	}
	done := make(chan error, 1)
	go guarded(f, func(err error) {
		t.strays.Add(-1)
		done <- err
	})
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	case <-timer.C:
		return fmt.Errorf("%s: %w", what, errTimeout)
	}
}

// guarded runs foreign code and tells what came of it, also when it panics or ends
// the goroutine.
func guarded(f func() error, tell func(error)) {
	err := errExited
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
		}
		tell(err)
	}()
	err = f()
}
