package integration

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/mysql"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// isolated opens a store on a server whose sessions have an isolation level from
// the start, such as SERIALIZABLE; "" is the server's own.
func isolated(t *testing.T, db string) func(level string) *gormstore.Store {
	t.Helper()
	var open func(level string) (*gormstore.Store, error)
	if db == "postgres" {
		dsn := postgresDatabase(t)
		open = func(level string) (*gormstore.Store, error) {
			if level != "" {
				dsn = setting(t, dsn, "default_transaction_isolation", strings.ToLower(level))
			}
			return postgres.Open(dsn, postgres.Config{MaxConns: 6, GORM: &gorm.Config{Logger: logger.Discard}})
		}
	} else {
		cfg := mariaDB(t)
		open = func(level string) (*gormstore.Store, error) {
			if level != "" {
				cfg.Params = map[string]string{"tx_isolation": "'" + strings.ReplaceAll(level, " ", "-") + "'"}
			}
			return mysql.Open(cfg.FormatDSN(), mysql.Config{MaxConns: 6, GORM: &gorm.Config{Logger: logger.Discard}})
		}
	}
	return func(level string) *gormstore.Store {
		store, err := open(level)
		must(t, err)
		t.Cleanup(func() { must(t, store.Close()) })
		return store
	}
}

// setting adds a setting of the sessions to a URL of PostgreSQL.
func setting(t *testing.T, dsn, name, value string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	must(t, err)
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	return u.String()
}

// TestC155Isolation, and case C111: whatever isolation level sessions begin with,
// two instances do what they do beside transactions of the application; a
// conflict with another instance costs no message an attempt.
func TestC155Isolation(t *testing.T) {
	t.Parallel()
	for _, db := range []string{"postgres", "mariadb"} {
		for _, level := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
			t.Run(db+"/"+level, func(t *testing.T) {
				t.Parallel()
				workIsolated(t, isolated(t, db), level)
			})
		}
	}
}

func workIsolated(t *testing.T, open func(level string) *gormstore.Store, level string) {
	t.Helper()
	q := memqueue.New(memqueue.Config{})
	var plain, conflicts journal
	once := counting(&conflicts)
	hurry := func(o *cap.Options) {
		o.CollectorCleaningInterval, o.SucceedMessageExpiredAfter, o.Concurrency = 10*time.Millisecond, 500*time.Millisecond, 2
	}
	eyes := open("").DB()
	must(t, eyes.Exec("CREATE TABLE orders (id varchar(40) PRIMARY KEY)").Error)
	must(t, eyes.Exec("CREATE TABLE effects (id varchar(40))").Error)
	must(t, eyes.Exec("CREATE TABLE total (n integer)").Error)
	must(t, eyes.Exec("INSERT INTO total VALUES (0)").Error)
	var buses []*cap.Bus
	stores := []*gormstore.Store{open(level), open(level)}
	for _, store := range stores {
		buses = append(buses, begun(t, made(t, store, q, hurry, serving(once,
			inGroup("order.placed", func(ctx context.Context, o order) error { return plain.handle(ctx, o.ID) }, subscribe.Name("plain"))))))
	}
	const workers, each = 4, 25
	var mu sync.Mutex
	var want []string
	crowd(workers, workers, func(w int) {
		for i := range each {
			id := fmt.Sprint(w, "-", i)
			if err := placeAgain(t.Context(), buses[w%2], stores[w%2].DB(), id, i%5 == 0); err != nil {
				t.Error(err)
				continue
			}
			mu.Lock()
			want = append(want, id)
			mu.Unlock()
		}
	})
	plain.wait(t, len(want))
	settled(t, eyes, window)
	plain.exactly(t, want)
	eachOnce(t, eyes)
	if n := number(t, eyes, "SELECT n FROM total"); n != len(want) || conflicts.len() > 0 {
		t.Errorf("%d effects were counted, want %d; conflicts failed %d attempts", n, len(want), conflicts.len())
	}
	eventually(t, "what has expired is deleted", func() bool {
		return number(t, eyes, "SELECT (SELECT count(*) FROM cap_published) + (SELECT count(*) FROM cap_received)") == 0
	})
}

// counting is a handler that fails at first, and then counts in a row that all
// have in common: a transaction with a higher level than READ COMMITTED would
// conflict with those beside it.
func counting(conflicts *journal) subscribe.Subscription {
	return inGroup("order.placed", gormstore.Handle(func(ctx context.Context, tx *gorm.DB, o order) error {
		switch info, _ := cap.InfoFromContext(ctx); {
		case info.Attempt == 1:
			return errRollback
		case info.Attempt > 2:
			conflicts.add(o.ID)
		}
		var n int
		if err := tx.Raw("SELECT n FROM total").Scan(&n).Error; err != nil {
			return err
		}
		if err := tx.Exec("UPDATE total SET n = n + 1").Error; err != nil {
			return err
		}
		return tx.Exec("INSERT INTO effects VALUES (?)", o.ID).Error
	}))
}

// placeAgain places an order, again when the application's own transaction was
// chosen as the victim of a conflict.
func placeAgain(ctx context.Context, bus *cap.Bus, db *gorm.DB, id string, delayed bool) (err error) {
	for range 50 {
		err = db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			var n int
			if err := tx.Raw("SELECT count(*) FROM effects").Scan(&n).Error; err != nil {
				return err
			}
			if err := tx.Exec("INSERT INTO orders VALUES (?)", id).Error; err != nil {
				return err
			}
			var opts []cap.PublishOption
			if delayed {
				opts = append(opts, cap.WithDelay(200*time.Millisecond))
			}
			return bus.Publish(ctx, tx, "order.placed", order{id}, opts...)
		})
		if err == nil || errors.Is(err, context.Canceled) {
			return err
		}
	}
	return fmt.Errorf("order %s: %w", id, err)
}
