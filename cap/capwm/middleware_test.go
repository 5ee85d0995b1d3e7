package capwm_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/cap/capwm"
	"github.com/capbus/gocap/operator"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// handled publishes a message to a handler behind middleware and returns the row.
func handled(t *testing.T, h func(context.Context, *cap.Message) error, mw ...message.HandlerMiddleware) *operator.Message {
	t.Helper()
	var with []subscribe.Middleware
	for _, m := range mw {
		with = append(with, capwm.Middleware(m))
	}
	bus := running(t, subscribe.To("t", h, subscribe.With(with...), subscribe.FailedRetryCount(1)))
	if err := bus.Publish(t.Context(), cap.NoTx, "t", "hello"); err != nil {
		t.Fatal(err)
	}
	pass(10 * time.Second)
	op, err := bus.Operator()
	if err != nil {
		t.Fatal(err)
	}
	page, err := op.List(t.Context(), operator.Filter{Box: operator.Received}, operator.Page{Limit: 10})
	if err != nil || len(page.Messages) == 0 {
		t.Fatalf("%d rows, %v", len(page.Messages), err)
	}
	for _, m := range page.Messages {
		if m.Topic == "t" {
			return m
		}
	}
	t.Fatal("no row of the topic")
	return nil
}

func TestRetryTriesWithinOneAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		row := handled(t, func(ctx context.Context, m *cap.Message) error {
			if info, _ := cap.InfoFromContext(ctx); info.Attempt != 1 || string(m.Body) != `"hello"` || m.Topic != "t" {
				t.Errorf("attempt %d of %+v", info.Attempt, m)
			}
			if runs.Add(1) < 3 {
				return errors.New("not yet")
			}
			return nil
		}, middleware.Retry{MaxRetries: 5, InitialInterval: 10 * time.Millisecond}.Middleware)
		if runs.Load() != 3 || row.State != operator.Succeeded {
			t.Errorf("%d runs, %+v", runs.Load(), row)
		}
	})
}

func TestRecovererMakesAnErrorOfAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		row := handled(t, func(context.Context, *cap.Message) error { panic("oh") }, middleware.Recoverer)
		if row.State != operator.Failed || !strings.Contains(row.LastError, "panic occurred: \"oh\"") {
			t.Errorf("%+v", row)
		}
	})
}

func TestTimeoutReachesTheHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		row := handled(t, func(ctx context.Context, _ *cap.Message) error {
			<-ctx.Done()
			return ctx.Err()
		}, middleware.Timeout(time.Second))
		if row.State != operator.Failed || !strings.Contains(row.LastError, context.DeadlineExceeded.Error()) {
			t.Errorf("%+v", row)
		}
	})
}

func TestCorrelationIDAndThrottle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var seen string
		row := handled(t, func(_ context.Context, m *cap.Message) error {
			seen = m.Headers[middleware.CorrelationIDMetadataKey]
			if time.Since(began) < time.Second {
				t.Error("it was not throttled")
			}
			return nil
		}, func(h message.HandlerFunc) message.HandlerFunc {
			return func(wm *message.Message) ([]*message.Message, error) {
				middleware.SetCorrelationID("c7", wm)
				return h(wm)
			}
		}, middleware.CorrelationID, middleware.NewThrottle(1, time.Second).Middleware)
		if row.State != operator.Succeeded || seen != "c7" {
			t.Errorf("header %q, %+v", seen, row)
		}
	})
}

// PoisonQueue over the bus: the copy is written in the transaction in which the
// message becomes a success.
func TestPoisonQueuePublishesWithTheMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var poisoned inbox
		var mw subscribe.Middleware
		later := func(next subscribe.Handler) subscribe.Handler {
			return subscribe.HandlerFunc(func(ctx context.Context, m *transport.Message) error { return mw(next).Handle(ctx, m) })
		}
		bus := running(t,
			subscribe.To("t", func(context.Context, string) error { return errors.New("bad") }, subscribe.With(later)),
			subscribe.To("poison", poisoned.handle))
		pq, err := middleware.PoisonQueue(capwm.NewPublisher(bus), "poison")
		if err != nil {
			t.Fatal(err)
		}
		mw = capwm.Middleware(pq)
		id := cap.NewID()
		if err := bus.Publish(t.Context(), cap.NoTx, "t", "hello", cap.WithID(id)); err != nil {
			t.Fatal(err)
		}
		got := poisoned.messages()
		if len(got) != 1 {
			t.Fatalf("%d messages are poisoned", len(got))
		}
		m := got[0]
		if string(m.Body) != `"hello"` || m.Headers[middleware.ReasonForPoisonedKey] != "bad" || m.Headers[capwm.HeaderUUID] != id {
			t.Errorf("%+v", m)
		}
	})
}

func TestControlErrorsPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		row := handled(t, func(context.Context, *cap.Message) error { return subscribe.Reject(errors.New("never")) },
			middleware.Recoverer, middleware.Timeout(time.Second))
		if row.State != operator.Failed || !strings.Contains(row.LastError, "never") {
			t.Errorf("%+v", row)
		}
	})
}

func TestReturnedMessagesAreAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		row := handled(t, func(context.Context, *cap.Message) error { return nil }, func(message.HandlerFunc) message.HandlerFunc {
			return func(*message.Message) ([]*message.Message, error) {
				return []*message.Message{message.NewMessage("1", nil)}, nil
			}
		})
		if row.State != operator.Failed || !strings.Contains(row.LastError, "publish them in the handler") {
			t.Errorf("%+v", row)
		}
	})
}
