package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
	"github.com/capbus/gocap/transport/rabbitmq"
)

// newRetryRabbit is as newRabbit, for the group "third", which has no inbox.
func newRetryRabbit(t *testing.T) *rabbit {
	t.Helper()
	r := newRabbit(t)
	t.Cleanup(func() {
		r.raw(t, func(ch *amqp091.Channel) {
			for _, end := range []string{"", ".retry", ".dlq"} {
				_, err := ch.QueueDelete(r.queue("third")+end, false, false, false)
				must(t, err)
			}
		})
	})
	return r
}

// third starts a bus that has the group, and ends it at the end of the test at
// the latest.
func (r *rabbit) third(t *testing.T, onFailed func(cap.FailedInfo), subs ...subscribe.Subscription) *cap.Bus {
	t.Helper()
	bus, err := cap.New(cap.Options{
		Storage: opened(t, file(t)), Transport: r.Transport, Version: r.version,
		Registry: &subscribe.Registry{}, Subscriptions: subs, DefaultGroupName: "third",
		Logger: slog.New(slog.DiscardHandler), PollInterval: 100 * time.Millisecond, Concurrency: 4,
		FailedThresholdCallback: func(_ context.Context, info cap.FailedInfo) { onFailed(info) },
	})
	must(t, err)
	must(t, bus.Start(t.Context()))
	t.Cleanup(func() { must(t, bus.Stop(context.WithoutCancel(t.Context()))) })
	return bus
}

// TestBrokerRetryOnRabbitMQ: what fails comes again and is parked; the callback
// tells of it once; who sends it back has it handled.
func TestBrokerRetryOnRabbitMQ(t *testing.T) {
	t.Parallel()
	r := newRetryRabbit(t)
	var failed, seen journal
	var mended atomic.Bool
	note := func(what string) subscribe.Middleware {
		return func(next subscribe.Handler) subscribe.Handler {
			return subscribe.HandlerFunc(func(ctx context.Context, m *cap.Message) error {
				info, _ := cap.InfoFromContext(ctx)
				seen.add(fmt.Sprintf("%s %d", what, info.Attempt))
				return next.Handle(ctx, m)
			})
		}
	}
	option := subscribe.BrokerRetry(2, 200*time.Millisecond)
	bus := r.third(t, func(info cap.FailedInfo) {
		failed.add(fmt.Sprintf("%s %s %s %d %s", info.Kind, info.Message.Topic, info.Group, info.Attempts, info.LastError))
	},
		subscribe.To("broken", func(ctx context.Context, _ order) error {
			if _, err := cap.TxFromContext(ctx); !errors.Is(err, cap.ErrNoTx) || !strings.Contains(err.Error(), "no inbox") {
				t.Errorf("inbox transaction: %v", err)
			}
			if err := cap.Publish(ctx, nil, "later", order{}); !errors.Is(err, cap.ErrNoTx) {
				t.Errorf("publish in the inbox transaction: %v", err)
			}
			if mended.Load() {
				return nil
			}
			return errors.New("out of order")
		}, option, subscribe.With(note("broken"))),
		subscribe.To("flaky", func(ctx context.Context, _ order) error {
			if info, _ := cap.InfoFromContext(ctx); info.Attempt == 1 {
				return errors.New("not now")
			}
			return nil
		}, option, subscribe.With(note("flaky"))),
		subscribe.To("refused.#", func(context.Context, order) error { return subscribe.Reject(errors.New("never")) }, option, subscribe.With(note("refused"))))
	broken := cap.NewID()
	must(t, bus.Publish(t.Context(), cap.NoTx, "broken", order{"1"}, cap.WithID(broken)))
	must(t, bus.Publish(t.Context(), cap.NoTx, "flaky", order{"2"}))
	must(t, bus.Publish(t.Context(), cap.NoTx, "refused.x.y", order{"3"}))
	eventually(t, "two are parked", func() bool { return failed.len() == 2 })
	eventually(t, "all attempts", func() bool { return seen.len() == 5 })
	wantSame(t, &seen, "broken 1, broken 2, flaky 1, flaky 2, refused 1")
	wantSame(t, &failed, "subscribe broken third 2 out of order, subscribe refused.x.y third 1 never")

	mended.Store(true)
	p, err := r.ForVersion(r.version).(*rabbitmq.Transport).Unpark(t.Context(), r.queue("third"), broken) //nolint:forcetypeassert // its own type
	must(t, err)
	if p.Attempts != 2 || p.Reason != "out of order" || p.Message.Topic != "broken" {
		t.Errorf("parked was %+v", p)
	}
	eventually(t, "it is handled", func() bool { return seen.len() == 6 })
	wantSame(t, &seen, "broken 1, broken 1, broken 2, flaky 1, flaky 2, refused 1")
}

// TestBrokerRetryLosesNothing: buses stop under load and the network is cut; what
// was published is handled, and none of it counts as a failure.
func TestBrokerRetryLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRetryRabbit(t)
	const n = 300
	var mu sync.Mutex
	handled := map[string]int{}
	sub := subscribe.To("work", func(ctx context.Context, o order) error {
		if info, _ := cap.InfoFromContext(ctx); info.Attempt != 1 {
			t.Errorf("attempt %d", info.Attempt)
		}
		timer := time.NewTimer(5 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		mu.Lock()
		defer mu.Unlock()
		handled[o.ID]++
		return nil
	}, subscribe.BrokerRetry(1, time.Minute))
	onFailed := func(info cap.FailedInfo) { t.Errorf("parked: %s", info.LastError) }
	count := func() (ids, runs int) {
		mu.Lock()
		defer mu.Unlock()
		for _, k := range handled {
			runs += k
		}
		return len(handled), runs
	}
	bus := r.third(t, onFailed, sub)
	for i := range n {
		must(t, bus.Publish(t.Context(), cap.NoTx, "work", order{fmt.Sprint(i)}))
	}
	for i := range 3 {
		eventually(t, "some more are handled", func() bool { ids, _ := count(); return ids >= (i+1)*n/6 })
		if i == 1 {
			r.network(true) // what there was is cut
			continue
		}
		next := r.third(t, onFailed, sub)
		must(t, bus.Stop(context.WithoutCancel(t.Context())))
		bus = next
	}
	eventually(t, "all are handled", func() bool { ids, _ := count(); return ids == n })
	ids, runs := count()
	t.Logf("%d messages handled in %d runs", ids, runs)
	if runs > n+100 { // the cut may repeat what was in hand
		t.Errorf("%d runs of %d messages", runs, n)
	}
	must(t, bus.Stop(context.WithoutCancel(t.Context())))
	r.raw(t, func(ch *amqp091.Channel) {
		for _, end := range []string{"", ".retry", ".dlq"} {
			q, err := ch.QueueDeclarePassive(r.queue("third")+end, true, false, false, false, nil)
			must(t, err)
			if q.Messages != 0 || q.Consumers != 0 {
				t.Errorf("queue %s has %d messages and %d consumers after a stop", q.Name, q.Messages, q.Consumers)
			}
		}
	})
}

func TestBrokerRetryNeedsABrokerThatCan(t *testing.T) {
	t.Parallel()
	bus, err := cap.New(cap.Options{
		Storage: opened(t, file(t)), Transport: memqueue.New(memqueue.Config{}), Registry: &subscribe.Registry{}, DefaultGroupName: "third",
		Subscriptions: []subscribe.Subscription{subscribe.To("t", func(context.Context, order) error { return nil }, subscribe.BrokerRetry(2, time.Second))},
	})
	must(t, err)
	if err = bus.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "memqueue cannot try a message again by itself; leave BrokerRetry out") {
		t.Errorf("start: %v", err)
	}
}

func wantSame(t *testing.T, j *journal, want string) {
	t.Helper()
	if got := strings.Join(j.sorted(), ", "); got != want {
		t.Errorf("%s; want %s", got, want)
	}
}
