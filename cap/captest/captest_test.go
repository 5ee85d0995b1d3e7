package captest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/cap/captest"
	"github.com/capbus/gocap/operator"
	"github.com/capbus/gocap/subscribe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type order struct{ ID int }

func publish(tb testing.TB, p cap.Publisher, topic string, msg any, opts ...cap.PublishOption) {
	tb.Helper()
	if err := p.Publish(tb.Context(), cap.NoTx, topic, msg, opts...); err != nil {
		tb.Fatalf("publish: %v", err)
	}
}

// forward publishes what it gets to another topic.
func forward(topic string) func(context.Context, order) error {
	return func(ctx context.Context, o order) error { return cap.Publish(ctx, nil, topic, o) }
}

func TestWhatHandlersPublishIsThereAfterDrain(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T) {
		t.Helper()
		bus := captest.New(t,
			subscribe.To("placed", forward("charged")), subscribe.To("charged", forward("packed")),
			subscribe.To("packed", forward("sent"), subscribe.Group("warehouse")))
		publish(t, bus, "placed", order{7})
		captest.Drain(t, bus)
		if got := captest.RequirePublished[order](t, bus, "sent"); got != (order{7}) {
			t.Errorf("sent: %+v", got)
		}
	}
	t.Run("clock", func(t *testing.T) { t.Parallel(); test(t) })
	t.Run("bubble", func(t *testing.T) { t.Parallel(); synctest.Test(t, test) })
}

// Each test has a bus of its own, and none is the default one.
func TestBusesDoNotMeet(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			bus := captest.New(t, subscribe.To("placed", forward("charged")))
			if cap.Default() == bus {
				t.Error("it is the default bus")
			}
			publish(t, bus, "placed", order{i})
			captest.Drain(t, bus)
			if got := captest.RequirePublished[order](t, bus, "charged"); got != (order{i}) {
				t.Errorf("charged: %+v", got)
			}
		})
	}
}

func TestABusThatOnlyPublishes(t *testing.T) {
	t.Parallel()
	bus := captest.New(t)
	publish(t, bus, "placed", order{7}, cap.WithHeader("tenant", "a"))
	captest.Drain(t, bus)
	if got := captest.RequirePublished[order](t, bus, "placed"); got != (order{7}) {
		t.Errorf("placed: %+v", got)
	}
	if m := captest.RequirePublished[*cap.Message](t, bus, "placed"); string(m.Body) != `{"ID":7}` ||
		m.Topic != "placed" || m.ID == "" || m.Headers["tenant"] != "a" {
		t.Errorf("message: %+v", m)
	}
}

func TestOptionsAreChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int32
		bus := captest.NewWith(t, func(o *cap.Options) {
			o.FailedRetryCount, o.FailedRetryInterval = 5, time.Second
			o.Subscriptions = append(o.Subscriptions, subscribe.To("other", forward("another")))
		}, subscribe.To("placed", func(context.Context, order) error { attempts.Add(1); return errors.New("no") }))
		publish(t, bus, "placed", order{7})
		publish(t, bus, "other", order{7})
		<-time.After(10 * time.Second)
		captest.Drain(t, bus)
		if n := attempts.Load(); n != 5 {
			t.Errorf("%d attempts, want 5", n)
		}
		captest.RequirePublished[order](t, bus, "another")
	})
}

// In a bubble days may pass, and what was published is to be there still.
func TestWhatWasPublishedStays(t *testing.T) {
	t.Parallel()
	bus := captest.New(t, subscribe.To("placed", forward("charged")))
	publish(t, bus, "placed", order{7})
	captest.Drain(t, bus)
	op, err := bus.Operator()
	if err != nil {
		t.Fatal(err)
	}
	l, err := op.List(t.Context(), operator.Filter{Box: operator.Published, Topic: "placed"}, operator.Page{})
	if err != nil || len(l.Messages) != 1 || time.Until(l.Messages[0].ExpiresAt) < 365*24*time.Hour {
		t.Errorf("%+v, %v; want one that stays for years", l.Messages, err)
	}
}

func TestABusThatCannotStartEndsTheTest(t *testing.T) {
	t.Parallel()
	bad := func(sub subscribe.Subscription) *spy {
		return observe(t, func(tb testing.TB) { tb.Helper(); captest.New(tb, sub) })
	}
	bad(subscribe.To("", forward("a"))).wantFatal(t, "captest: ", "captest_test.go")
	observe(t, func(tb testing.TB) {
		tb.Helper()
		captest.NewWith(tb, func(o *cap.Options) { o.FailedRetryCount = -1 })
	}).wantFatal(t, "captest: ", "FailedRetryCount")
	observe(t, func(tb testing.TB) {
		tb.Helper()
		captest.NewWith(tb, func(o *cap.Options) { o.Transport = nil })
	}).wantFatal(t, "captest: ", "Transport")
}

func TestTheBusStopsWithTheTest(t *testing.T) {
	t.Parallel()
	var bus *cap.Bus
	s := observe(t, func(tb testing.TB) { tb.Helper(); bus = captest.New(tb, subscribe.To("placed", forward("a"))) })
	if s.failed || bus.Health(t.Context()).Running {
		t.Errorf("the bus runs on, or: %s", s.output())
	}
}

// A handler that hangs is told of, and its late words harm nobody.
func TestAHandlerThatDoesNotEndFailsTheTest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var late func()
		s := observe(t, func(tb testing.TB) {
			tb.Helper()
			began := make(chan struct{})
			bus := captest.NewWith(tb, func(o *cap.Options) { log := o.Logger; late = func() { log.Error("late") } },
				subscribe.To("placed", func(context.Context, order) error { close(began); <-release; return nil }))
			publish(tb, bus, "placed", order{7})
			<-began
		})
		if !s.failed || !strings.Contains(s.output(), "did not stop cleanly") {
			t.Errorf("the test did not fail for a handler that hangs: %s", s.output())
		}
		late()
		if strings.Contains(s.out.String(), "late") {
			t.Error("it logs after the end of the test")
		}
		close(release)
	})
}

// What goes wrong in a handler is in the output of the test.
func TestTheLogIsTheTests(t *testing.T) {
	t.Parallel()
	s := observe(t, func(tb testing.TB) {
		tb.Helper()
		bus := captest.New(tb, subscribe.To("placed", func(context.Context, order) error {
			return subscribe.Reject(errors.New("out of stock"))
		}))
		publish(tb, bus, "placed", order{7})
		captest.Drain(tb, bus)
	})
	if s.failed || !strings.Contains(s.out.String(), "out of stock") {
		t.Errorf("failed %v, output %q", s.failed, s.out.String())
	}
}
