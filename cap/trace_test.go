package cap_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// steps notes what hooks see, in order.
type steps struct {
	mu    sync.Mutex
	lines []string
}

func (j *steps) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *steps) has(line string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Contains(j.lines, line)
}

type spanKey struct{}

// traced sets hooks on every step that write into the steps.
func (j *steps) traced() cap.Options {
	settled := func(side string) func(*storage.Record, storage.Outcome, bool) {
		return func(r *storage.Record, o storage.Outcome, stored bool) {
			j.add("%s settled %s %d %t", side, r.Topic, o.Kind, stored)
		}
	}
	return cap.Options{
		SendTrace: &processor.Trace{
			Publish: func(ctx context.Context, m *transport.Message) {
				j.add("publish %s in %v", m.Topic, ctx.Value(spanKey{}))
				m.Headers["traceparent"] = "00-1"
			},
			Send: func(ctx context.Context, msgs []*transport.Message) (context.Context, func([]error)) {
				return context.WithValue(ctx, spanKey{}, "send"), func(errs []error) { j.add("sent %d %v", len(msgs), errs) }
			},
			Settled:   settled("out"),
			Breaker:   func(_ context.Context, cause error) { j.add("breaker open=%t", cause != nil) },
			Collected: func(_ context.Context, box storage.Box, n int) { j.add("collected %s %d", box, n) },
			TakenOver: func(_ context.Context, recs []*storage.Record) { j.add("out taken over %d", len(recs)) },
		},
		HandleTrace: &subscribe.Trace{
			Stored: func(_ context.Context, group string, deliveries, rows int) {
				j.add("stored %s %d %d", group, deliveries, rows)
			},
			Handle: func(ctx context.Context, info subscribe.Info) (context.Context, func(error)) {
				j.add("handle %s attempt %d after %s", info.Message.Topic, info.Attempt, info.Message.Headers["traceparent"])
				return context.WithValue(ctx, spanKey{}, "handle"), func(err error) { j.add("handled %v", err) }
			},
			Settled:   settled("in"),
			TakenOver: func(_ context.Context, recs []*storage.Record) { j.add("in taken over %d", len(recs)) },
		},
	}
}

func TestTraceSeesEveryStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &steps{}
		opts := j.traced()
		opts.SucceedMessageExpiredAfter, opts.CollectorCleaningInterval = time.Second, time.Second
		var runs atomic.Int32
		r := newRig(t, opts, subscribe.To("order.placed", func(ctx context.Context, _ string) error {
			j.add("handler in %v", ctx.Value(spanKey{}))
			if runs.Add(1) == 1 {
				return errors.New("not yet")
			}
			return nil
		}, subscribe.Group("g")))
		ctx := context.WithValue(t.Context(), spanKey{}, "request")
		if err := r.Publish(ctx, cap.NoTx, "order.placed", "x"); err != nil { // owned by nobody, so it is taken over
			t.Fatal(err)
		}
		r.start(t)
		<-time.After(10 * time.Second)
		for _, want := range []string{
			"publish order.placed in request", "out taken over 1", "sent 1 [<nil>]", "out settled order.placed 1 true",
			"stored g 1 1", "handle order.placed attempt 1 after 00-1", "handler in handle", "handled not yet",
			"in settled order.placed 2 true", "handle order.placed attempt 2 after 00-1", "handled <nil>",
			"in settled order.placed 1 true", "collected published 1", "collected received 1",
		} {
			if !j.has(want) {
				t.Errorf("no hook saw %q", want)
			}
		}
		if t.Failed() {
			t.Log(j.lines)
		}
	})
}

func TestTraceSeesTheBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &steps{}
		r := newRig(t, j.traced(), subscribe.To("a", func(context.Context, string) error { return nil }, subscribe.Group("g"))).start(t)
		r.queue.Disconnect()
		if err := r.Publish(t.Context(), cap.NoTx, "a", "x"); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Second)
		r.queue.Reconnect()
		<-time.After(5 * time.Second)
		for _, want := range []string{"breaker open=true", "breaker open=false", "out settled a 1 true"} {
			if !j.has(want) {
				t.Errorf("no hook saw %q: %q", want, j.lines)
			}
		}
	})
}

// TestATransactionalSuccessIsTraced, as it is settled by its own transaction.
func TestATransactionalSuccessIsTraced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &steps{}
		r := newRig(t, j.traced(), subscribe.To("a", func(ctx context.Context, _ string) error {
			_, err := cap.TxFromContext(ctx)
			return err
		}, subscribe.Group("g"))).start(t)
		if err := r.Publish(t.Context(), cap.NoTx, "a", "x"); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Second)
		if !j.has("in settled a 1 true") {
			t.Errorf("no hook saw it: %q", j.lines)
		}
	})
}

// TestHooksThatPanicChangeNothing: the message is sent and handled all the same.
func TestHooksThatPanicChangeNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := func() { panic("hook") }
		var handled atomic.Int32
		r := newRig(t, cap.Options{
			SendTrace: &processor.Trace{
				Publish:   func(context.Context, *transport.Message) { bad() },
				Send:      func(context.Context, []*transport.Message) (context.Context, func([]error)) { bad(); return nil, nil },
				Settled:   func(*storage.Record, storage.Outcome, bool) { bad() },
				TakenOver: func(context.Context, []*storage.Record) { bad() },
			},
			HandleTrace: &subscribe.Trace{
				Stored: func(context.Context, string, int, int) { bad() },
				Handle: func(context.Context, subscribe.Info) (context.Context, func(error)) {
					return nil, func(error) { bad() }
				},
				Settled: func(*storage.Record, storage.Outcome, bool) { bad() },
			},
		}, subscribe.To("a", func(context.Context, string) error { handled.Add(1); return nil }, subscribe.Group("g")))
		if err := r.Publish(t.Context(), cap.NoTx, "a", "x"); err != nil {
			t.Fatal(err)
		}
		r.start(t)
		<-time.After(5 * time.Second)
		if n := handled.Load(); n != 1 {
			t.Errorf("handled %d times", n)
		}
	})
}

// TestHeadersOfAHookAreChecked as those of the application.
func TestHeadersOfAHookAreChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{
		Transport: memqueue.New(memqueue.Config{}),
		SendTrace: &processor.Trace{Publish: func(_ context.Context, m *transport.Message) { m.Headers["a\x00b"] = "x" }},
	})
	if err := r.Publish(t.Context(), cap.NoTx, "a", "x"); err == nil {
		t.Error("a header with NUL is published")
	}
	if n := len(r.store.Records(storage.Outbox)); n != 0 {
		t.Errorf("%d rows", n)
	}
}
