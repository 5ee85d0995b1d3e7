package integration

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// serve runs a bus on a SQLite file that waits only a tenth of a second for its
// writer.
func serve(t *testing.T, opts cap.Options, subs ...subscribe.Subscription) (*cap.Bus, *gorm.DB) {
	t.Helper()
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "shop.db"), sqlite.Config{Synchronous: "NORMAL", BusyTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	opts.Storage, opts.Transport, opts.Registry, opts.Subscriptions = store, memqueue.New(memqueue.Config{}), &subscribe.Registry{}, subs
	opts.DefaultGroupName, opts.PollInterval = "g", 50*time.Millisecond
	bus, err := cap.New(opts)
	if err == nil {
		err = bus.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bus.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return bus, store.DB()
}

// TestWaitingForTheWriterCostsNoAttempt: transactional handlers that are slow
// take turns, and none of them fails for it.
func TestWaitingForTheWriterCostsNoAttempt(t *testing.T) {
	t.Parallel()
	var open, most atomic.Int64
	bus, db := serve(t, cap.Options{Concurrency: 6, FailedRetryCount: 1}, subscribe.To("t", gormstore.Handle(func(context.Context, *gorm.DB, int) error {
		if n := open.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-time.After(150 * time.Millisecond)
		open.Add(-1)
		return nil
	})))
	msgs := make([]cap.Outgoing, 12)
	for i := range msgs {
		msgs[i] = cap.Outgoing{Topic: "t", Msg: i}
	}
	if err := bus.PublishMany(t.Context(), cap.NoTx, msgs...); err != nil {
		t.Fatal(err)
	}
	settled(t, db, 3*time.Second)
	if n := number(t, db, "SELECT count(*) FROM cap_received WHERE status = 2 AND retries = 0"); n != len(msgs) || most.Load() != 1 {
		t.Errorf("%d of %d messages handled at the first attempt, %d at once", n, len(msgs), most.Load())
	}
}

// TestHandlerThatHoldsTheWriter fails before it costs the lease, and says why.
func TestHandlerThatHoldsTheWriter(t *testing.T) {
	t.Parallel()
	bus, db := serve(t, cap.Options{FailedRetryCount: 1, FallbackWindow: 2 * time.Second}, subscribe.To("t", gormstore.Handle(func(ctx context.Context, _ *gorm.DB, _ int) error {
		<-ctx.Done()
		return ctx.Err()
	})))
	if err := bus.Publish(t.Context(), cap.NoTx, "t", 1); err != nil {
		t.Fatal(err)
	}
	settled(t, db, 3*time.Second)
	got := column(t, db, "SELECT status||' '||retries||' '||last_error FROM cap_received")
	if len(got) != 1 || !strings.HasPrefix(got[0], "3 1 ") || !strings.Contains(got[0], "held the inbox transaction for 1s") {
		t.Errorf("the message ended %q", got)
	}
}
