package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// spanOf is the key of the caller's span in a context.
type spanOf struct{}

// TestC163TraceThroughRetries, and case C165: the trace of whoever publishes is
// that of the message, and every attempt has it, also those of another process
// that read it from the table, and what the handler publishes then.
func TestC163TraceThroughRetries(t *testing.T) {
	t.Parallel()
	eachDatabase(t, traced)
}

func traced(t *testing.T, store *gormstore.Store) {
	t.Helper()
	const state, baggage = "vendor=x,other=y", "tenant=b%20lue"
	q := memqueue.New(memqueue.Config{})
	var attempts, answers journal
	seen := func(m *cap.Message) string {
		return strings.Join([]string{m.Headers["traceparent"], m.Headers["tracestate"], m.Headers["baggage"]}, " ")
	}
	change := func(o *cap.Options) {
		o.SendTrace = &processor.Trace{Publish: func(ctx context.Context, m *transport.Message) {
			if span, ok := ctx.Value(spanOf{}).(string); ok {
				m.Headers["traceparent"] = span
			}
		}}
		o.HandleTrace = &subscribe.Trace{Handle: func(ctx context.Context, info subscribe.Info) (context.Context, func(error)) {
			return context.WithValue(ctx, spanOf{}, info.Message.Headers["traceparent"]), nil
		}}
		o.ImmediateRetries = -1
	}
	serve := func(succeed bool) *cap.Bus {
		return made(t, store, q, change, serving(
			inGroup("asked", func(ctx context.Context, m *cap.Message) error {
				info, _ := cap.InfoFromContext(ctx)
				attempts.add(fmt.Sprint(min(info.Attempt, 3), " ", seen(m)))
				if !succeed {
					return errRollback
				}
				return cap.Publish(ctx, nil, "answered", "x")
			}),
			inGroup("answered", func(_ context.Context, m *cap.Message) error { answers.add(seen(m)); return nil })))
	}
	first := serve(false)
	must(t, first.Start(t.Context()))
	// Sampled, not sampled, none.
	spans := []string{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00", ""}
	for _, span := range spans {
		ctx := t.Context()
		if span != "" {
			ctx = context.WithValue(ctx, spanOf{}, span)
		}
		must(t, first.Publish(ctx, cap.NoTx, "asked", "x", cap.WithHeader("tracestate", state), cap.WithHeader("baggage", baggage)))
	}
	eventually(t, "all have failed twice", func() bool {
		return number(t, store.DB(), "SELECT count(*) FROM cap_received WHERE retries > 1") == len(spans)
	})
	must(t, first.Stop(context.WithoutCancel(t.Context())))
	begun(t, serve(true))
	answers.wait(t, len(spans))
	settled(t, store.DB(), window)
	var want []string
	for _, span := range spans {
		for attempt := 1; attempt <= 3; attempt++ {
			if line := fmt.Sprint(attempt, " ", span, " ", state, " ", baggage); attempts.count(line) == 0 {
				t.Errorf("no attempt saw %q; they saw %q", line, attempts.sorted())
			}
		}
		want = append(want, span+"  ")
	}
	answers.exactly(t, want)
}
