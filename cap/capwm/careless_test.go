package capwm_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/cap/capwm"
	"github.com/capbus/gocap/operator"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// poisoning is a bus whose subscriptions fail, with PoisonQueue on the bus itself.
func poisoning(t *testing.T, in *inbox, names ...string) *cap.Bus {
	t.Helper()
	var mw subscribe.Middleware
	later := func(next subscribe.Handler) subscribe.Handler {
		return subscribe.HandlerFunc(func(ctx context.Context, m *transport.Message) error { return mw(next).Handle(ctx, m) })
	}
	subs := []subscribe.Subscription{subscribe.To("poison", in.handle)}
	for _, name := range names {
		subs = append(subs, subscribe.To("t", func(context.Context, string) error { return errors.New(name) },
			subscribe.With(later), subscribe.Name(name), subscribe.Group("group of "+name)))
	}
	bus := running(t, subs...)
	pq, err := middleware.PoisonQueue(capwm.NewPublisher(bus), "poison")
	if err != nil {
		t.Fatal(err)
	}
	mw = capwm.Middleware(pq)
	return bus
}

// A message that asks for an answer, or has an empty key, is passed on as any other.
func TestPoisonQueuePassesAllHeadersOn(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]cap.PublishOption{
		"reply to": cap.WithReplyTo("answers"), "key": cap.WithKey("7"), "other": cap.WithHeader("x", ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var in inbox
				bus := poisoning(t, &in, "a")
				if err := bus.Publish(t.Context(), cap.NoTx, "t", "hello", opt); err != nil {
					t.Fatal(err)
				}
				if got := in.messages(); len(got) != 1 {
					t.Errorf("%d messages are poisoned", len(got))
				}
			})
		})
	}
}

// Two subscriptions give the same message up: each has its copy.
func TestPoisonQueueOfTwoSubscriptions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var in inbox
		bus := poisoning(t, &in, "a", "b")
		if err := bus.Publish(t.Context(), cap.NoTx, "t", "hello"); err != nil {
			t.Fatal(err)
		}
		reasons := map[string]int{}
		for _, m := range in.messages() {
			reasons[m.Headers[middleware.ReasonForPoisonedKey]]++
		}
		if reasons["a"] != 1 || reasons["b"] != 1 {
			t.Errorf("poisoned by %v", reasons)
		}
	})
}

// A copy of a Watermill message has no context: the handler would run outside of the
// inbox transaction, and no stop would reach it.
func TestAMessageWithoutItsContextIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		row := handled(t, func(context.Context, *cap.Message) error { return nil }, func(h message.HandlerFunc) message.HandlerFunc {
			return func(wm *message.Message) ([]*message.Message, error) { return h(wm.Copy()) }
		})
		if row.State != operator.Failed || !strings.Contains(row.LastError, "SetContext") {
			t.Errorf("%+v", row)
		}
	})
}
