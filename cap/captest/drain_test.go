package captest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/cap/captest"
	"github.com/capbus/gocap/subscribe"
)

// Long chains and many messages: whenever Drain looks, it looks between a sender
// and a receiver of something.
func TestDrainWaitsForAllThatComesOfIt(t *testing.T) {
	t.Parallel()
	const chains, links = 20, 10
	var ended atomic.Int32
	next := func(ctx context.Context, n int) error {
		if n == links {
			ended.Add(1)
			return nil
		}
		return cap.Publish(ctx, nil, "link", n+1)
	}
	bus := captest.New(t, subscribe.To("link", next))
	for round := range 3 {
		for range chains {
			publish(t, bus, "link", 1)
		}
		captest.Drain(t, bus)
		if n, want := int(ended.Load()), (round+1)*chains; n != want {
			t.Fatalf("round %d: Drain returned after %d of %d chains", round, n, want)
		}
	}
}

func TestDrainWaitsForASlowHandlerAndItsCallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handled, told := false, false
		bus := captest.NewWith(t, func(o *cap.Options) {
			o.FailedRetryCount = 1
			o.FailedThresholdCallback = func(context.Context, cap.FailedInfo) {
				<-time.After(10 * time.Second)
				told = true
			}
		}, subscribe.To("placed", func(context.Context, order) error {
			<-time.After(10 * time.Second)
			handled = true
			return errors.New("no")
		}))
		publish(t, bus, "placed", order{7})
		captest.Drain(t, bus)
		if !handled || !told {
			t.Errorf("handled %v, callback made %v", handled, told)
		}
	})
}

// What is not due yet is left, and done when its time has come.
func TestDrainLeavesWhatIsDueLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var attempts, delayed atomic.Int32
		bus := captest.New(t,
			subscribe.To("placed", func(context.Context, order) error {
				if attempts.Add(1) < 4 {
					return errors.New("no")
				}
				return nil
			}),
			subscribe.To("later", func(context.Context, order) error { delayed.Add(1); return nil }))
		start := time.Now()
		publish(t, bus, "placed", order{7})
		publish(t, bus, "later", order{7}, cap.WithDelay(90*time.Second))
		publish(t, bus, "nobody", order{7})
		captest.Drain(t, bus)
		want := func(a, d int32) {
			t.Helper()
			if attempts.Load() != a || delayed.Load() != d {
				t.Errorf("after %v: %d attempts, %d delayed ones; want %d and %d", time.Since(start), attempts.Load(), delayed.Load(), a, d)
			}
		}
		want(3, 0)
		if time.Since(start) > 5*time.Second {
			t.Errorf("Drain has waited for %v", time.Since(start))
		}
		<-time.After(time.Minute)
		captest.Drain(t, bus)
		want(4, 0)
		<-time.After(time.Minute)
		captest.Drain(t, bus)
		want(4, 1)
	})
}

func TestDrainSaysWhatIsNotDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		observe(t, func(tb testing.TB) {
			tb.Helper()
			n := 0
			bus := captest.New(tb, subscribe.To("placed", func(context.Context, order) error {
				if n++; n == 1 {
					return errors.New("out of stock")
				}
				<-release
				return nil
			}, subscribe.Group("billing"), subscribe.Name("charge")))
			tb.Cleanup(func() { close(release) })
			publish(tb, bus, "placed", order{7})
			captest.Drain(tb, bus)
		}).wantFatal(t, "not done within 1m0s", `received`, `topic "placed"`, `for "charge" of group "billing"`, "1 attempts failed", "out of stock")
	})
}

func TestDrainOfABusThatDoesNotRun(t *testing.T) {
	t.Parallel()
	observe(t, func(tb testing.TB) {
		tb.Helper()
		bus := captest.New(tb, subscribe.To("placed", forward("charged")))
		if err := bus.Stop(tb.Context()); err != nil {
			tb.Fatalf("stop: %v", err)
		}
		captest.Drain(tb, bus) // nothing is due
		publish(tb, bus, "placed", order{7})
		captest.Drain(tb, bus)
	}).wantFatal(t, "the bus does not run", `published`, `topic "placed"`)
}

// What waits behind a message of its key that is due later is due later, too.
func TestDrainLeavesWhatWaitsBehindItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var handled atomic.Int32
		late := time.Now().Add(time.Hour)
		bus := captest.New(t, subscribe.To("placed", func(context.Context, order) error {
			if wait := time.Until(late); wait > 0 {
				return subscribe.Snooze(wait)
			}
			handled.Add(1)
			return nil
		}, subscribe.Ordered()))
		publish(t, bus, "nobody", order{7}, cap.WithKey("b")) // holds up its key in the outbox
		publish(t, bus, "placed", order{7}, cap.WithKey("b"))
		publish(t, bus, "placed", order{7}, cap.WithKey("a"))
		publish(t, bus, "placed", order{8}, cap.WithKey("a"))
		begun := time.Now()
		captest.Drain(t, bus)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("took %s", took)
		}
		<-time.After(time.Until(late))
		captest.Drain(t, bus)
		if n := handled.Load(); n != 2 {
			t.Errorf("%d handled, want 2", n)
		}
	})
}
