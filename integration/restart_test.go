package integration

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// restarted kills the server, and shuts it down, while orders are placed and
// handled. The bus goes on by itself soon after the server answers an independent
// client again, and every order that was committed has its effect once.
func restarted(t *testing.T, server *testenv.Server, store *gormstore.Store, answers func(), limit time.Duration) {
	t.Helper()
	var told journal
	tell := subscribe.To("order.placed", func(ctx context.Context, o order) error { return told.handle(ctx, o.ID) }, subscribe.Group("told"))
	bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}), serving(effects(), tell)))
	var placed atomic.Int64
	stop := load(t, bus, store.DB(), &placed)
	defer stop()
	for round, end := range []func() error{server.Kill, server.Stop, server.Kill} {
		before := placed.Load()
		eventually(t, "orders are placed", func() bool { return placed.Load() > before+20 })
		must(t, end())
		must(t, server.Start(t.Context()))
		answers()
		since, id := time.Now(), fmt.Sprint("after ", round)
		eventually(t, "an order can be placed", func() bool { return placeOrder(t.Context(), bus, store.DB(), id) == nil })
		eventually(t, "it is handled", func() bool { return told.count(id) > 0 })
		took := time.Since(since)
		if took > limit {
			t.Errorf("round %d: more than %s", round, limit)
		}
		t.Logf("round %d: the bus went on %s after the server", round, took)
	}
	stop()
	settled(t, store.DB(), window)
	eachOnce(t, store.DB())
	if n := number(t, store.DB(), `SELECT count(*) FROM orders`); int64(n) < placed.Load() {
		t.Errorf("%d orders are there, %d were committed", n, placed.Load())
	}
	if n := number(t, store.DB(), `SELECT count(*) FROM cap_received WHERE retries > 1`); n > 0 {
		t.Logf("%d rows were tried more than once", n)
	}
}

// load places orders until it is stopped, and counts those that are committed.
func load(t *testing.T, bus *cap.Bus, db *gorm.DB, placed *atomic.Int64) (stop func()) {
	t.Helper()
	over := make(chan struct{})
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				case <-tick.C:
				}
				// One whose COMMIT failed is there or not; then so is its effect.
				if placeOrder(t.Context(), bus, db, fmt.Sprint(w, "-", i)) == nil {
					placed.Add(1)
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(over)
		all.Wait()
	})
}
