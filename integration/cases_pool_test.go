package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	driver "github.com/libtnb/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/mysql"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/transport/memqueue"
)

// ordinary is a store on a pool that the application has opened by itself, of so
// many connections.
func ordinary(tb testing.TB, conns int, prepare bool) *gormstore.Store {
	tb.Helper()
	dsn := "file:" + file(tb) + "?_txlock=immediate&_busy_timeout=5000&_journal_mode=WAL&_synchronous=NORMAL"
	db, err := gorm.Open(driver.Open(dsn), &gorm.Config{Logger: logger.Discard, PrepareStmt: prepare})
	must(tb, err)
	pool, err := db.DB()
	must(tb, err)
	pool.SetMaxOpenConns(conns)
	store := gormstore.New(db, gormstore.Config{})
	tb.Cleanup(func() {
		if err := errors.Join(store.Close(), pool.Close()); err != nil {
			tb.Error(err)
		}
	})
	return store
}

// TestC011SmallPool, and case C009: publishing takes no second connection, also
// where statements are prepared, in nested transactions, and while everything
// else of the bus wants connections too.
func TestC011SmallPool(t *testing.T) {
	t.Parallel()
	preparing := func(c *sqlite.Config) { c.GORM.PrepareStmt = true }
	for name, open := range map[string]func(testing.TB) *gormstore.Store{
		"store":           func(tb testing.TB) *gormstore.Store { tb.Helper(); return opened(tb, file(tb)) },
		"store, prepared": func(tb testing.TB) *gormstore.Store { tb.Helper(); return opened(tb, file(tb), preparing) },
		"two, prepared":   func(tb testing.TB) *gormstore.Store { tb.Helper(); return ordinary(tb, 2, true) },
		"two":             func(tb testing.TB) *gormstore.Store { tb.Helper(); return ordinary(tb, 2, false) },
		"one":             func(tb testing.TB) *gormstore.Store { tb.Helper(); return ordinary(tb, 1, false) },
		"one, prepared":   func(tb testing.TB) *gormstore.Store { tb.Helper(); return ordinary(tb, 1, true) },
		"postgres, two, prepared": func(tb testing.TB) *gormstore.Store {
			tb.Helper()
			store, err := postgres.Open(postgresDatabase(tb), postgres.Config{MaxConns: 2, GORM: prepared()})
			must(tb, err)
			tb.Cleanup(func() { must(tb, store.Close()) })
			return store
		},
		"mariadb, two, prepared": func(tb testing.TB) *gormstore.Store {
			tb.Helper()
			return pooledMariaDB(tb, mariaDB(tb).FormatDSN())
		},
		"in memory":            func(tb testing.TB) *gormstore.Store { tb.Helper(); return opened(tb, ":memory:") },
		"in memory, preparing": func(tb testing.TB) *gormstore.Store { tb.Helper(); return opened(tb, ":memory:", preparing) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			publishInSmallPool(t, open(t))
		})
	}
}

func prepared() *gorm.Config { return &gorm.Config{Logger: logger.Discard, PrepareStmt: true} }

// pooledMariaDB is a store on two connections, whose application prepares its
// statements.
func pooledMariaDB(tb testing.TB, dsn string) *gormstore.Store {
	tb.Helper()
	store, err := mysql.Open(dsn, mysql.Config{MaxConns: 2, GORM: prepared()})
	must(tb, err)
	tb.Cleanup(func() { must(tb, store.Close()) })
	return store
}

// TestC009PreparedStatements: nested transactions of an application that prepares
// its statements leave no prepared statement behind each.
func TestC009PreparedStatements(t *testing.T) {
	t.Parallel()
	server := testenv.StartMariaDB(t)
	admin := pooledMariaDB(t, server.DSN)
	must(t, admin.DB().Exec("CREATE DATABASE shop").Error)
	store := pooledMariaDB(t, server.DSN+"shop")
	bus := made(t, store, nil)
	must(t, bus.Migrate(t.Context()))
	count := func() int {
		var of struct{ Value int }
		must(t, admin.DB().Raw("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'").Scan(&of).Error)
		return of.Value
	}
	var first int
	for i := range 300 {
		must(t, publishNested(t.Context(), bus, store.DB(), fmt.Sprint(i)))
		if i == 20 {
			first = count()
		}
	}
	if n := count(); n > first || n > 100 {
		t.Errorf("%d statements are prepared after 20 transactions, %d after 300", first, n)
	}
	if n := number(t, store.DB(), "SELECT count(*) FROM cap_published"); n != 600 {
		t.Errorf("%d messages are there, want 600", n)
	}
}

func publishInSmallPool(t *testing.T, store *gormstore.Store) {
	t.Helper()
	var j journal
	bus := made(t, store, memqueue.New(memqueue.Config{}), serving(inGroup("t", j.handle)), func(o *cap.Options) {
		o.PollInterval, o.CollectorCleaningInterval = 10*time.Millisecond, 10*time.Millisecond
	})
	begun(t, bus)
	const workers, each = 4, 15
	var want []string
	var all sync.WaitGroup
	for w := range workers {
		for i := range each {
			want = append(want, fmt.Sprintf("%d-%d", w, i), fmt.Sprintf("%d-%d inner", w, i))
		}
		all.Go(func() {
			for i := range each {
				if err := publishNested(t.Context(), bus, store.DB(), fmt.Sprintf("%d-%d", w, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	settled(t, store.DB(), window)
	j.exactly(t, want)
}

// publishNested publishes in a transaction, in an inner one, and in an inner one
// that is rolled back.
func publishNested(ctx context.Context, bus *cap.Bus, db *gorm.DB, id string) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		begun := time.Now()
		if err := bus.Publish(ctx, tx, "t", id); err != nil {
			return err
		}
		if d := time.Since(begun); d > 5*time.Second {
			return fmt.Errorf("publishing took %s", d)
		}
		err := tx.Transaction(func(tx *gorm.DB) error { return bus.Publish(ctx, tx, "t", id+" inner") })
		undone := tx.Transaction(func(tx *gorm.DB) error {
			return errors.Join(bus.Publish(ctx, tx, "t", id+" undone"), errRollback)
		})
		if !errors.Is(undone, errRollback) {
			err = errors.Join(err, undone)
		}
		return err
	})
}

// Of TestC020TwoProcesses.
const (
	busyWriters = 4
	busyEach    = 10 // messages of a writer
)

// TestC020TwoProcesses: the publishers of two processes on one file, which read
// first, are not refused while both relay, handle and clean up.
func TestC020TwoProcesses(t *testing.T) {
	t.Parallel()
	path := file(t)
	store := opened(t, path) // makes the tables, so that the children only work
	must(t, store.Migrate(t.Context()))
	must(t, store.DB().Exec(schema+audit).Error)
	var all sync.WaitGroup
	for child := range 2 {
		all.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this test binary
			cmd.Env = append(os.Environ(), childEnv+"=busy", "GOCAP_TEST_DB="+path, "GOCAP_TEST_ROUND="+strconv.Itoa(child))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	settled(t, store.DB(), window)
	verify(t, store.DB())
	if n := number(t, store.DB(), "SELECT count(*) FROM effects"); n != 2*busyWriters*busyEach {
		t.Errorf("%d orders handled, want %d", n, 2*busyWriters*busyEach)
	}
	if n := number(t, store.DB(), "SELECT count(*) FROM handled"); n != 2*busyWriters*busyEach {
		t.Errorf("%d runs of a plain handler, want %d", n, 2*busyWriters*busyEach)
	}
}

// busyChild places its orders and ends when all of its process is done.
func busyChild() {
	ctx := context.Background()
	s, err := newService(ctx, os.Getenv("GOCAP_TEST_DB"), func(o *cap.Options) {
		o.FallbackWindow = 15 * time.Second // two processes wait for one another's writes
		o.CollectorCleaningInterval = 20 * time.Millisecond
	})
	check(err)
	check(s.bus.Start(ctx))
	errs := make(chan error, busyWriters)
	for w := range busyWriters {
		go func() { errs <- s.readAndPlace(ctx, fmt.Sprintf("%s-%d", os.Getenv("GOCAP_TEST_ROUND"), w)) }()
	}
	for range busyWriters {
		check(<-errs)
	}
	var left int64
	for end := time.Now().Add(2 * patience); ; <-time.After(20 * time.Millisecond) {
		check(s.store.DB().Raw(open).Scan(&left).Error)
		if left == 0 || time.Now().After(end) {
			break
		}
	}
	check(s.bus.Stop(ctx))
	check(s.store.Close())
}

func (s *service) readAndPlace(ctx context.Context, prefix string) error {
	for i := range busyEach {
		id := fmt.Sprintf("%s-%d", prefix, i)
		err := s.store.DB().WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			var n int
			if err := tx.Raw("SELECT count(*) FROM orders").Scan(&n).Error; err != nil {
				return err
			}
			return s.write(ctx, tx, id)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}
