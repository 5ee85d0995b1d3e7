package integration

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

func onPostgres(tb testing.TB, dsn, text string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	must(tb, err)
	defer conn.Close(ctx) //nolint:errcheck // it is not used any more
	_, err = conn.Exec(ctx, text)
	must(tb, err)
}

// postgresDatabase makes a database for one test.
func postgresDatabase(tb testing.TB) string {
	tb.Helper()
	name := "gocap_bus_" + strings.ToLower(rand.Text()[:12])
	onPostgres(tb, testenv.Postgres(), `CREATE DATABASE `+name)
	tb.Cleanup(func() { onPostgres(tb, testenv.Postgres(), `DROP DATABASE `+name+` WITH (FORCE)`) })
	u, err := url.Parse(testenv.Postgres())
	must(tb, err)
	u.Path = "/" + name
	return u.String()
}

// postgresStore opens a store, and makes the business tables.
func postgresStore(tb testing.TB, dsn string, conns int) *gormstore.Store {
	tb.Helper()
	store, err := postgres.Open(dsn, postgres.Config{MaxConns: conns, GORM: &gorm.Config{Logger: logger.Discard}})
	must(tb, err)
	tb.Cleanup(func() { must(tb, store.Close()) })
	must(tb, store.DB().Exec(`CREATE TABLE orders (id text PRIMARY KEY); CREATE TABLE effects (id text)`).Error)
	return store
}

// effects are of a handler in the inbox transaction.
func effects() subscribe.Subscription {
	return subscribe.To("order.placed", gormstore.Handle(func(_ context.Context, tx *gorm.DB, o order) error {
		return tx.Exec(`INSERT INTO effects VALUES (?)`, o.ID).Error
	}), subscribe.Group("effects"))
}

// placeOrder writes an order and its message.
func placeOrder(ctx context.Context, bus *cap.Bus, db *gorm.DB, id string) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Exec(`INSERT INTO orders VALUES (?)`, id).Error; err != nil {
			return err
		}
		return bus.Publish(ctx, tx, "order.placed", order{id})
	})
}

// eachOnce checks that every order had its effect, once, and nothing else had.
func eachOnce(tb testing.TB, db *gorm.DB) {
	tb.Helper()
	orders, seen := column(tb, db, `SELECT id FROM orders ORDER BY id`), column(tb, db, `SELECT id FROM effects ORDER BY id`)
	slices.Sort(orders)
	slices.Sort(seen)
	if !slices.Equal(orders, seen) {
		tb.Errorf("%d orders, %d effects:\n%q\n%q", len(orders), len(seen), orders, seen)
	}
}

// TestPostgresWithOneConnection: a whole bus starts, publishes, handles and stops
// on a pool of one, directly and behind PgBouncer.
func TestPostgresWithOneConnection(t *testing.T) {
	t.Parallel()
	for _, pooled := range []bool{false, true} {
		t.Run(fmt.Sprint("pooled ", pooled), func(t *testing.T) {
			t.Parallel()
			dsn := postgresDatabase(t)
			if pooled {
				u, err := url.Parse(dsn)
				must(t, err)
				u.Host, u.User = testenv.StartPgBouncer(t, dsn).Addr, url.User("postgres")
				u.RawQuery = "sslmode=disable&default_query_exec_mode=exec"
				dsn = u.String()
			}
			store := postgresStore(t, dsn, 1)
			var j journal
			bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}),
				serving(effects(), inGroup("order.placed", func(ctx context.Context, o order) error { return j.handle(ctx, o.ID) })),
				func(o *cap.Options) { o.CollectorCleaningInterval = 10 * time.Millisecond }))
			const workers, each = 4, 25
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() {
					for i := range each {
						if err := placeOrder(t.Context(), bus, store.DB(), fmt.Sprint(w, "-", i)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			settled(t, store.DB(), window)
			eachOnce(t, store.DB())
			if j.len() != workers*each {
				t.Errorf("%d messages were handled", j.len())
			}
		})
	}
}
