package integration

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestPostgresRestartsUnderLoad: the server is killed, and shut down, while
// orders are placed and handled. The bus goes on by itself soon after the server
// answers again, and every order that was committed has its effect once.
func TestPostgresRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t)
	store := postgresStore(t, server.DSN, 0)
	var told journal
	tell := subscribe.To("order.placed", func(ctx context.Context, o order) error { return told.handle(ctx, o.ID) }, subscribe.Group("told"))
	bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}), serving(effects(), tell)))
	var placed atomic.Int64
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
				if placeOrder(t.Context(), bus, store.DB(), fmt.Sprint(w, "-", i)) == nil {
					placed.Add(1)
				}
			}
		})
	}
	for round, end := range []func() error{server.Kill, server.Stop, server.Kill} {
		before := placed.Load()
		eventually(t, "orders are placed", func() bool { return placed.Load() > before+20 })
		must(t, end())
		must(t, server.Start(t.Context()))
		answers(t, server.DSN)
		since, id := time.Now(), fmt.Sprint("after ", round)
		eventually(t, "an order can be placed", func() bool { return placeOrder(t.Context(), bus, store.DB(), id) == nil })
		eventually(t, "it is handled", func() bool { return told.count(id) > 0 })
		if took := time.Since(since); took > 2*time.Second {
			t.Errorf("round %d: the bus went on %s after the server", round, took)
		}
	}
	close(over)
	all.Wait()
	settled(t, store.DB(), window)
	eachOnce(t, store.DB())
	if n := number(t, store.DB(), `SELECT count(*) FROM orders`); int64(n) < placed.Load() {
		t.Errorf("%d orders are there, %d were committed", n, placed.Load())
	}
	if n := number(t, store.DB(), `SELECT count(*) FROM cap_received WHERE retries > 1`); n > 0 {
		t.Logf("%d rows were tried more than once", n)
	}
}

// answers waits until an independent client has an answer.
func answers(t *testing.T, dsn string) {
	t.Helper()
	for {
		conn, err := pgx.Connect(t.Context(), dsn)
		if err == nil {
			_, err = conn.Exec(t.Context(), `SELECT 1`)
			must(t, conn.Close(t.Context()))
		}
		if err == nil || t.Context().Err() != nil {
			must(t, err)
			return
		}
	}
}
