// Package captest runs a bus in a test: on the memory adapters, with a registry of
// its own, stopped when the test ends. It needs no server, tests may run in
// parallel, and inside a testing/synctest bubble hours of retries take
// milliseconds (make the bus inside the bubble, too).
//
//	bus := captest.New(t, subscribe.To("order.placed", shop.charge))
//	...
//	captest.Drain(t, bus)
//	charged := captest.RequirePublished[Charged](t, bus, "order.charged")
//
// Functions that fail end the test, as t.Fatal does, so they are called by its
// own goroutine.
package captest

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// New returns a bus with the subscriptions, running. It is not the default bus:
// code under test takes a cap.Publisher, or publishes from its handlers. Without
// subscriptions the bus publishes all the same, and keeps what nobody takes.
func New(tb testing.TB, subs ...subscribe.Subscription) *cap.Bus {
	tb.Helper()
	return NewWith(tb, func(*cap.Options) {}, subs...)
}

// NewWith is as New, with other options: change gets those of New, which are the
// defaults, but
//
//   - Storage and Transport in memory, Registry empty and of its own
//   - DefaultGroupName "test", so that a subscription needs no group
//   - Logger writes Warn and Error to the output of the test
//   - rows stay in the tables for ten years instead of a day, for
//     RequirePublished
//
// What handlers write through gorm needs a storage of it, such as
// sqlite.Open(":memory:", sqlite.Config{}). Retries and delays go by the clock of
// that database, not by that of a synctest bubble: set RetryBackoff to wait for
// nothing, outside of a bubble.
func NewWith(tb testing.TB, change func(o *cap.Options), subs ...subscribe.Subscription) *cap.Bus {
	tb.Helper()
	const kept = 10 * 365 * 24 * time.Hour
	out := &output{w: tb.Output()}
	opts := cap.Options{
		Storage: memstore.New(memstore.Config{}), Transport: memqueue.New(memqueue.Config{}),
		Registry: &subscribe.Registry{}, DefaultGroupName: "test",
		Logger:                     slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn})),
		SucceedMessageExpiredAfter: kept, FailedMessageExpiredAfter: kept,
	}
	change(&opts)
	opts.Subscriptions = append(opts.Subscriptions[:len(opts.Subscriptions):len(opts.Subscriptions)], subs...)
	bus, err := cap.New(opts)
	if err != nil {
		tb.Fatalf("captest: %v", err)
	}
	if err := bus.Start(tb.Context()); err != nil {
		tb.Fatalf("captest: %v", err)
	}
	tb.Cleanup(func() {
		tb.Helper()
		if err := bus.Stop(context.WithoutCancel(tb.Context())); err != nil {
			tb.Errorf("captest: the bus did not stop cleanly: %v", err)
		}
		out.close()
	})
	return bus
}

// output writes to the test's as long as that runs. A handler that Stop could not
// end may log later, and would crash the tests that follow.
type output struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(b)
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.w = io.Discard
}
