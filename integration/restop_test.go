package integration

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// stops is how often a bus is stopped under load; a full run sets
// GOCAP_STOPS=100.
const stops = 8

// TestStoppedUnderLoad starts and stops a bus again and again while messages are
// published and handled. Each Stop keeps its time, leaves no connection in use,
// and counts nothing as failed; the last run finishes the work.
func TestStoppedUnderLoad(t *testing.T) {
	t.Parallel()
	dbs := append(swarmDBs(), swarmDB{
		name: "sqlite",
		open: func(dsn string) (*gormstore.Store, error) {
			return sqlite.Open(dsn, sqlite.Config{Synchronous: "NORMAL", BusyTimeout: 20 * time.Second})
		},
		create: func(t *testing.T) string { t.Helper(); return t.TempDir() + "/stop.db" },
		tables: []string{"CREATE TABLE orders (id TEXT PRIMARY KEY)", "CREATE TABLE effects (id TEXT)"},
	})
	for _, db := range dbs {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			stopUnderLoad(t, db)
		})
	}
}

func stopUnderLoad(t *testing.T, db swarmDB) {
	t.Helper()
	store, err := db.open(db.create(t))
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	must(t, store.Migrate(t.Context()))
	for _, q := range db.tables {
		must(t, store.DB().Exec(q).Error)
	}
	pool, err := store.DB().DB()
	must(t, err)
	for round := range int(fromEnv(t, "GOCAP_STOPS", stops)) {
		s := stoppable(t, store)
		must(t, s.bus.Start(t.Context()))
		loading, end := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for w := range 3 {
			wg.Go(func() { s.orderUntil(loading, fmt.Sprintf("%d-%d", round, w)) })
		}
		moved(t, store.DB(), 5)
		begun := time.Now()
		must(t, s.bus.Stop(t.Context())) // the load goes on meanwhile
		took := time.Since(begun)
		end()
		wg.Wait()
		if took > 10*time.Second {
			t.Errorf("round %d: Stop took %v", round, took)
		}
		// The load was cut in transactions, which database/sql ends by and by.
		eventually(t, "no connection is in use", func() bool { return pool.Stats().InUse == 0 })
	}
	last := stoppable(t, store)
	must(t, last.bus.Start(t.Context()))
	finished(t, store.DB(), 60*time.Second)
	must(t, last.bus.Stop(t.Context()))
	for what, query := range map[string]string{
		"orders without effect":  "SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT 1 FROM effects e WHERE e.id = o.id)",
		"effects more than once": "SELECT count(*) - count(DISTINCT id) FROM effects",
		"messages not sent":      "SELECT count(*) FROM cap_published WHERE status <> 2",
		"deliveries not handled": "SELECT count(*) FROM cap_received WHERE status <> 2",
		"attempts counted":       "SELECT (SELECT count(*) FROM cap_published WHERE retries > 0) + (SELECT count(*) FROM cap_received WHERE retries > 0)",
	} {
		if n := number(t, store.DB(), query); n != 0 {
			t.Errorf("%s: %d", what, n)
		}
	}
}

func stoppable(t *testing.T, store *gormstore.Store) *service {
	t.Helper()
	s := &service{store: store, queue: memqueue.New(memqueue.Config{})}
	var err error
	s.bus, err = cap.New(cap.Options{
		Storage: store, Transport: s.queue, Registry: &subscribe.Registry{}, Logger: slog.New(slog.DiscardHandler),
		FallbackWindow: window, PollInterval: 100 * time.Millisecond, Concurrency: 3,
		Subscriptions: []subscribe.Subscription{
			subscribe.To("order.placed", gormstore.Handle(func(_ context.Context, tx *gorm.DB, o order) error {
				return tx.Exec("INSERT INTO effects (id) VALUES (?)", o.ID).Error
			}), subscribe.Group("effects")),
			subscribe.To("order.placed", func(ctx context.Context, _ order) error {
				select { // slow enough to be cut now and then
				case <-time.After(30 * time.Millisecond):
				case <-ctx.Done():
				}
				return ctx.Err()
			}, subscribe.Group("slow")),
		},
	})
	must(t, err)
	return s
}

func (s *service) orderUntil(ctx context.Context, prefix string) {
	for n := 0; ctx.Err() == nil; n++ {
		_ = s.placeOrder(ctx, fmt.Sprintf("%s-%d", prefix, n), nil) // an error is that of a context that ends
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// moved waits until n more effects are there.
func moved(t *testing.T, db *gorm.DB, n int) {
	t.Helper()
	goal := number(t, db, "SELECT count(*) FROM effects") + n
	eventually(t, "messages are handled", func() bool { return number(t, db, "SELECT count(*) FROM effects") >= goal })
}
