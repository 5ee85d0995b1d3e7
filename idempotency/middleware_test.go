package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/cap/captest"
	"github.com/capbus/gocap/idempotency"
	"github.com/capbus/gocap/idempotency/memtracker"
	"github.com/capbus/gocap/operator"
	"github.com/capbus/gocap/subscribe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type payment struct{ Order string }

// counter is a handler that counts its runs by order.
type counter struct {
	mu   sync.Mutex
	runs map[string]int
}

func (c *counter) handle(_ context.Context, p payment) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[string]int{}
	}
	c.runs[p.Order]++
	return nil
}

func (c *counter) of(order string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[order]
}

// lossy loses the success of the first n attempts.
func lossy(n int) subscribe.Middleware {
	return func(next subscribe.Handler) subscribe.Handler {
		return subscribe.HandlerFunc(func(ctx context.Context, m *cap.Message) error {
			err := next.Handle(ctx, m)
			if info, _ := cap.InfoFromContext(ctx); err == nil && info.Attempt <= n {
				return errors.New("the success is lost")
			}
			return err
		})
	}
}

func publish(t *testing.T, bus *cap.Bus, p any) {
	t.Helper()
	if err := bus.Publish(t.Context(), cap.NoTx, "paid", p); err != nil {
		t.Fatal(err)
	}
}

// states counts the received messages in each state.
func states(t *testing.T, bus *cap.Bus) map[operator.State]int {
	t.Helper()
	n := map[operator.State]int{}
	for _, m := range received(t, bus) {
		n[m.State]++
	}
	return n
}

func received(t *testing.T, bus *cap.Bus) []*operator.Message {
	t.Helper()
	op, err := bus.Operator()
	if err != nil {
		t.Fatal(err)
	}
	l, err := op.List(t.Context(), operator.Filter{Box: operator.Received}, operator.Page{})
	if err != nil {
		t.Fatal(err)
	}
	return l.Messages
}

// It is refused before anything runs.
func TestMiddlewareNeedsATrackerAndAKey(t *testing.T) {
	t.Parallel()
	var work counter
	for name, mw := range map[string]subscribe.Middleware{
		"tracker":  idempotency.Middleware(nil, idempotency.MessageID),
		"key":      idempotency.Middleware(memtracker.New(memtracker.Config{}), nil),
		"JSON key": idempotency.Middleware(memtracker.New(memtracker.Config{}), idempotency.JSONKey[payment](nil)),
	} {
		if err := subscribe.To("paid", work.handle, subscribe.With(mw)).Validate(); err == nil || !strings.Contains(err.Error(), "a middleware is nil") {
			t.Errorf("without a %s: %v", name, err)
		}
	}
}

// A message is handled again, because its success was lost: it has one effect.
// Without the middleware it has three, which is what this test can tell.
func TestARepeatedMessageHasOneEffect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		with []subscribe.Middleware
		want int
	}{
		"with":    {[]subscribe.Middleware{idempotency.Middleware(memtracker.New(memtracker.Config{}), idempotency.MessageID)}, 1},
		"without": {nil, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var work counter
			bus := captest.New(t, subscribe.To("paid", work.handle, subscribe.With(append([]subscribe.Middleware{lossy(2)}, c.with...)...)))
			publish(t, bus, payment{"7"})
			captest.Drain(t, bus)
			if n := work.of("7"); n != c.want {
				t.Errorf("%d effects, want %d", n, c.want)
			}
			if got := states(t, bus); got[operator.Succeeded] != 1 {
				t.Errorf("the message has not succeeded: %v", got)
			}
		})
	}
}

// TestABusinessKeyFindsTheSameEventUnderNewIDs: the same event is published again
// under new ids. A tracker by message id must not do, or the test sees nothing.
func TestABusinessKeyFindsTheSameEventUnderNewIDs(t *testing.T) {
	t.Parallel()
	const copies = 10
	byOrder := idempotency.JSONKey(func(p payment) string { return p.Order })
	for name, c := range map[string]struct {
		key  idempotency.KeyFunc
		want int
	}{"business key": {byOrder, 1}, "message id": {idempotency.MessageID, copies}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var work counter
			tracker := memtracker.New(memtracker.Config{})
			bus := captest.NewWith(t, func(o *cap.Options) { o.Concurrency = 4 },
				subscribe.To("paid", work.handle, subscribe.With(idempotency.Middleware(tracker, c.key))))
			for range copies {
				publish(t, bus, payment{"7"})
			}
			publish(t, bus, payment{"8"})
			succeeded(t, bus, copies+1)
			if seven, eight := work.of("7"), work.of("8"); seven != c.want || eight != 1 {
				t.Errorf("%d effects of one order, %d of another; want %d and 1", seven, eight, c.want)
			}
		})
	}
}

// succeeded waits until so many messages have succeeded: one that met another
// in progress is tried again a second later.
func succeeded(t *testing.T, bus *cap.Bus, n int) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for states(t, bus)[operator.Succeeded] < n {
		select {
		case <-deadline:
			t.Fatalf("not %d messages have succeeded: %v", n, states(t, bus))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Subscriptions may share a tracker: each handles the message.
func TestEachSubscriptionHasKeysOfItsOwn(t *testing.T) {
	t.Parallel()
	once := subscribe.With(idempotency.Middleware(memtracker.New(memtracker.Config{}), idempotency.MessageID))
	// Names that are the same when they are only put together.
	names := [][2]string{{"a", "bc"}, {"ab", "c"}, {"a", "b"}, {"1:a", "b"}}
	work := make([]counter, len(names))
	var subs []subscribe.Subscription
	for i, n := range names {
		subs = append(subs, subscribe.To("paid", work[i].handle, subscribe.Group(n[0]), subscribe.Name(n[1]), once))
	}
	bus := captest.New(t, subs...)
	publish(t, bus, payment{"7"})
	captest.Drain(t, bus)
	for i := range work {
		if n := work[i].of("7"); n != 1 {
			t.Errorf("subscription %v: %d effects, want 1", names[i], n)
		}
	}
}

// busy answers the first calls with ErrInProgress.
type busy struct {
	idempotency.Tracker
	left atomic.Int32
}

func (b *busy) Once(ctx context.Context, key string, fn func(ctx context.Context) error) error {
	if b.left.Add(-1) >= 0 {
		return fmt.Errorf("busy: %w", idempotency.ErrInProgress)
	}
	return b.Tracker.Once(ctx, key, fn)
}

// A key in progress is tried again, every second, without costing an attempt.
func TestAKeyInProgressCostsNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var work counter
		b := &busy{Tracker: memtracker.New(memtracker.Config{})}
		b.left.Store(5)
		bus := captest.New(t, subscribe.To("paid", work.handle, subscribe.FailedRetryCount(1),
			subscribe.With(idempotency.Middleware(b, idempotency.MessageID))))
		publish(t, bus, payment{"7"})
		for range 5 {
			captest.Drain(t, bus)
			if n := work.of("7"); n != 0 {
				t.Fatal("handled while its key is in progress")
			}
			<-time.After(1100 * time.Millisecond)
		}
		captest.Drain(t, bus)
		if n := work.of("7"); n != 1 {
			t.Errorf("handled %d times, want 1", n)
		}
		if m := received(t, bus)[0]; m.State != operator.Succeeded || m.Attempts != 0 {
			t.Errorf("state %v after %d failed attempts, want succeeded after none", m.State, m.Attempts)
		}
	})
}

// Without a key there is nothing to tell messages apart by: they are not dropped
// as repeats, and not handled either.
func TestAMessageWithoutAKeyFailsForGood(t *testing.T) {
	t.Parallel()
	for body, want := range map[any]string{payment{""}: "the key is empty", 7: "cannot unmarshal number"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			var work counter
			key := idempotency.JSONKey(func(p payment) string { return p.Order })
			bus := captest.New(t, subscribe.To("paid", work.handle,
				subscribe.With(idempotency.Middleware(memtracker.New(memtracker.Config{}), key))))
			publish(t, bus, body)
			publish(t, bus, body)
			captest.Drain(t, bus)
			for _, m := range received(t, bus) {
				if m.State != operator.Failed || m.Attempts != 1 || !strings.Contains(m.LastError, want) {
					t.Errorf("%v after %d attempts: %s", m.State, m.Attempts, m.LastError)
				}
			}
			if work.of("") != 0 {
				t.Error("it was handled")
			}
		})
	}
}

func TestAnErrorOfTheHandlerLeavesTheKey(t *testing.T) {
	t.Parallel()
	var attempts atomic.Int32
	tracker := memtracker.New(memtracker.Config{})
	bus := captest.New(t, subscribe.To("paid", func(context.Context, payment) error {
		if attempts.Add(1) == 1 {
			return errors.New("no")
		}
		return nil
	}, subscribe.With(idempotency.Middleware(tracker, idempotency.MessageID))))
	publish(t, bus, payment{"7"})
	captest.Drain(t, bus)
	if n := attempts.Load(); n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}
}
