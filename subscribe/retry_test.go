package subscribe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
)

// schedule lets a message fail and returns the waits between its runs, to the
// second. A consumer looks every 100 ms.
func schedule(t *testing.T, change func(*subscribe.ConsumerConfig), last time.Duration, how func(run int) error, opts ...subscribe.Option) (waits []time.Duration, rec *storage.Record) {
	t.Helper()
	var at []time.Time
	r := running(t, change, subscribe.To("t", func(context.Context, string) error {
		at = append(at, time.Now())
		return how(len(at))
	}, opts...))
	r.send("t", "1", `"m"`)
	elapse(last)
	for i := 1; i < len(at); i++ {
		waits = append(waits, at[i].Sub(at[i-1]).Truncate(time.Second))
	}
	if len(at) == 0 {
		t.Fatal("the handler did not run")
	}
	return waits, r.record()
}

func no(int) error { return errors.New("no") }

func TestWhenAFailedMessageIsTriedAgain(t *testing.T) {
	t.Parallel()
	type waits = []time.Duration
	const m, s = time.Minute, time.Second
	linear := func(attempt int) time.Duration { return time.Duration(attempt) * 10 * time.Second }
	for name, c := range map[string]struct {
		change func(*subscribe.ConsumerConfig)
		how    func(int) error
		opts   []subscribe.Option
		want   waits
	}{
		"three at once, then the interval": {
			func(c *subscribe.ConsumerConfig) { c.Policy.Count = 5 }, no, nil, waits{0, 0, m, m},
		},
		"none at once": {
			func(c *subscribe.ConsumerConfig) { c.Policy.Count, c.Policy.Immediate = 3, 0 }, no, nil, waits{m, m},
		},
		"one attempt is no retry": {
			func(c *subscribe.ConsumerConfig) { c.Policy.Count = 1 }, no, nil, nil,
		},
		"backoff, the first ones too": {
			func(c *subscribe.ConsumerConfig) { c.Policy.Count, c.Policy.Backoff = 4, linear }, no, nil, waits{10 * s, 20 * s, 30 * s},
		},
		"the subscription's count": {nil, no, []subscribe.Option{subscribe.FailedRetryCount(2)}, waits{0}},
		"the subscription's interval": {
			func(c *subscribe.ConsumerConfig) { c.Policy.Count = 5 }, no,
			[]subscribe.Option{subscribe.FailedRetryInterval(5 * s)},
			waits{0, 0, 5 * s, 5 * s},
		},
		"the subscription's backoff": {
			nil, no, []subscribe.Option{subscribe.RetryBackoff(linear), subscribe.FailedRetryCount(3)}, waits{10 * s, 20 * s},
		},
		"a negative backoff is at once": {
			nil, no, []subscribe.Option{subscribe.RetryBackoff(func(int) time.Duration { return -1 }), subscribe.FailedRetryCount(3)}, waits{0, 0},
		},
		"RetryAfter counts": {
			func(c *subscribe.ConsumerConfig) { c.Policy.Count = 3 },
			func(int) error { return subscribe.RetryAfter(7*s, errors.New("no")) }, nil,
			waits{7 * s, 7 * s},
		},
		"RetryAfter, wrapped": {
			func(c *subscribe.ConsumerConfig) { c.Policy.Count = 2 },
			func(int) error { return fmt.Errorf("x: %w", subscribe.RetryAfter(7*s, nil)) }, nil,
			waits{7 * s},
		},
		"Snooze does not count": {
			func(c *subscribe.ConsumerConfig) { c.Policy.Count = 2 },
			func(run int) error {
				if run <= 5 {
					return subscribe.Snooze(30 * s)
				}
				return errors.New("no")
			}, nil,
			waits{30 * s, 30 * s, 30 * s, 30 * s, 30 * s, 0},
		},
		"Reject is final": {nil, func(run int) error {
			if run == 2 {
				return errors.Join(errors.New("and"), subscribe.Reject(errors.New("never")))
			}
			return errors.New("no")
		}, nil, waits{0}},
		"a panic counts": {
			func(c *subscribe.ConsumerConfig) { c.Policy.Count = 4 }, func(int) error { panic("no") }, nil, waits{0, 0, m},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got, rec := schedule(t, c.change, 10*time.Minute, c.how, c.opts...)
				if !slices.Equal(got, c.want) {
					t.Errorf("waits %v, want %v", got, c.want)
				}
				if !rec.Final || rec.Status != storage.Failed {
					t.Errorf("the row is %v, final %t, want failed for good", rec.Status, rec.Final)
				}
			})
		})
	}
}

func TestAMessageThatSucceedsAtLastHasSucceeded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		waits, rec := schedule(t, nil, 10*time.Minute, func(run int) error {
			if run < 5 {
				return errors.New("no")
			}
			return nil
		})
		if len(waits) != 4 || rec.Status != storage.Succeeded || !rec.Final || rec.Retries != 4 {
			t.Errorf("waits %v; row %v, %d failed attempts", waits, rec.Status, rec.Retries)
		}
	})
}

func TestTimeoutEndsTheContextOfARun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts []subscribe.Option
		want time.Duration
	}{
		"of the options":      {nil, time.Minute},
		"of the subscription": {[]subscribe.Option{subscribe.Timeout(5 * time.Second)}, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var took time.Duration
				var cause error
				r := running(t, func(c *subscribe.ConsumerConfig) { c.Timeout, c.Policy.Count = time.Minute, 1 },
					subscribe.To("t", func(ctx context.Context, _ string) error {
						begun := time.Now()
						<-ctx.Done()
						took, cause = time.Since(begun), context.Cause(ctx)
						return ctx.Err()
					}, c.opts...))
				r.send("t", "1", `"m"`)
				elapse(10 * time.Minute)
				if took != c.want || !errors.Is(cause, context.DeadlineExceeded) {
					t.Errorf("the context ended after %s with %v, want %s and a deadline", took, cause, c.want)
				}
				if rec := r.record(); rec.Retries != 1 || !strings.Contains(rec.LastError, "longer than "+c.want.String()) {
					t.Errorf("row: %d attempts, %q, want one that says which limit it was", rec.Retries, rec.LastError)
				}
			})
		})
	}
}

func TestASlowHandlerThatSucceedsHasSucceeded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := running(t, nil, subscribe.To("t", func(context.Context, string) error {
			runs++
			pause(5 * time.Minute) // its lease is renewed all the while
			return nil
		}, subscribe.Timeout(time.Minute)))
		r.send("t", "1", `"m"`)
		elapse(10 * time.Minute)
		if rec := r.record(); runs != 1 || rec.Status != storage.Succeeded {
			t.Errorf("%d runs, row %v", runs, rec.Status)
		}
	})
}

func TestAShutdownIsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(ctx context.Context) error{
		"ctx.Err":       func(ctx context.Context) error { return ctx.Err() },
		"another error": func(context.Context) error { return errors.New("driver: bad connection") },
		"Reject":        func(ctx context.Context) error { return subscribe.Reject(ctx.Err()) },
		"panic":         func(context.Context) error { panic("cut") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var cause error
				r := newRig(t, shared{}, func(c *subscribe.ConsumerConfig) { c.Policy.Count = 1 }, subscribe.To("t", func(ctx context.Context, _ string) error {
					<-ctx.Done()
					cause = context.Cause(ctx)
					return how(ctx)
				}))
				stop := r.startUntil()
				r.send("t", "1", `"m"`)
				elapse(time.Second)
				stop()
				if rec := r.record(); rec.Final || rec.Retries != 0 || rec.Takeovers != 0 || len(r.callbacks()) > 0 || !errors.Is(cause, errStopping) {
					t.Errorf("row: final %t, %d attempts, %d takeovers; %d callbacks; cause %v", rec.Final, rec.Retries, rec.Takeovers, len(r.callbacks()), cause)
				}
				var done tally
				newRig(t, shared{r.store, r.queue}, nil, subscribe.To("t", done.handler(""))).start()
				elapse(time.Second)
				if done.of("m") != 1 {
					t.Error("the next instance did not handle the message")
				}
			})
		})
	}
}
