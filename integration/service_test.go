package integration

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// The business tables of the tests. They have no unique keys where a second
// effect must show.
const schema = `
CREATE TABLE IF NOT EXISTS orders  (id TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS effects (id TEXT);
CREATE TABLE IF NOT EXISTS handled (id TEXT);
CREATE TABLE IF NOT EXISTS retried (id TEXT);
CREATE TABLE IF NOT EXISTS chained (id TEXT);
`

// audit notes every change of a row that was final already, but for a callback
// that was made.
const audit = `
CREATE TABLE IF NOT EXISTS left_final (box TEXT, id BLOB);
CREATE TRIGGER IF NOT EXISTS audit_published AFTER UPDATE ON cap_published
	WHEN OLD.expires_at IS NOT NULL AND (NEW.expires_at IS NOT OLD.expires_at OR NEW.status <> OLD.status OR NEW.retries <> OLD.retries)
	BEGIN INSERT INTO left_final VALUES ('published', OLD.id); END;
CREATE TRIGGER IF NOT EXISTS audit_received AFTER UPDATE ON cap_received
	WHEN OLD.expires_at IS NOT NULL AND (NEW.expires_at IS NOT OLD.expires_at OR NEW.status <> OLD.status OR NEW.retries <> OLD.retries)
	BEGIN INSERT INTO left_final VALUES ('received', OLD.id); END;
`

// window is the FallbackWindow of the tests with crashes: it must exceed the
// longest write, and the race detector makes SQLite 20 times as slow.
const window = 3 * time.Second

type order struct{ ID string }

// service is a small business on one SQLite file: orders are published, and
// handled by four subscriptions.
type service struct {
	store *gormstore.Store
	bus   *cap.Bus
	queue *memqueue.Queue
}

func newService(ctx context.Context, path string, change ...func(*cap.Options)) (*service, error) {
	store, err := sqlite.Open(path, sqlite.Config{
		Synchronous: "NORMAL",         // SIGKILL loses nothing of the page cache
		BusyTimeout: 20 * time.Second, // the race detector makes SQLite 20 times as slow
		GORM:        &gorm.Config{Logger: logger.Discard},
	})
	if err != nil {
		return nil, err
	}
	s := &service{store: store, queue: memqueue.New(memqueue.Config{})}
	opts := cap.Options{
		Storage: store, Transport: s.queue, Registry: &subscribe.Registry{}, Subscriptions: s.subscriptions(),
		Logger:         slog.New(slog.NewTextHandler(logs(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		FallbackWindow: window, PollInterval: 100 * time.Millisecond, FailedRetryInterval: 100 * time.Millisecond,
		ImmediateRetries: 1, Concurrency: 4,
	}
	for _, f := range change {
		f(&opts)
	}
	s.bus, err = cap.New(opts)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if err := s.init(ctx); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return s, nil
}

func (s *service) init(ctx context.Context) error {
	if err := s.store.Migrate(ctx); err != nil {
		return err
	}
	return s.store.DB().WithContext(ctx).Transaction(func(tx *gorm.DB) error { return tx.Exec(schema + audit).Error })
}

// logs are for whoever looks into a failure.
func logs() io.Writer {
	if os.Getenv("GOCAP_TEST_LOG") != "" {
		return os.Stderr
	}
	return io.Discard
}

func (s *service) subscriptions() []subscribe.Subscription {
	return []subscribe.Subscription{
		// Exactly once: the effect, a further message and the row's success are one.
		subscribe.To("order.placed", gormstore.Handle(func(ctx context.Context, tx *gorm.DB, o order) error {
			if err := tx.Exec("INSERT INTO effects VALUES (?)", o.ID).Error; err != nil {
				return err
			}
			return cap.Publish(ctx, nil, "order.charged", o)
		}), subscribe.Group("effects")),
		subscribe.To("order.charged", gormstore.Handle(func(_ context.Context, tx *gorm.DB, o order) error {
			return tx.Exec("INSERT INTO chained VALUES (?)", o.ID).Error
		}), subscribe.Group("effects")),
		// At least once.
		subscribe.To("order.*", func(ctx context.Context, o order) error {
			if info, _ := cap.InfoFromContext(ctx); info.Message.Topic != "order.placed" {
				return nil
			}
			return s.store.DB().WithContext(ctx).Exec("INSERT INTO handled VALUES (?)", o.ID).Error
		}, subscribe.Group("handled")),
		// Fails twice, with a write that must not stay.
		subscribe.To("order.placed", gormstore.Handle(func(ctx context.Context, tx *gorm.DB, o order) error {
			if err := tx.Exec("INSERT INTO retried VALUES (?)", o.ID).Error; err != nil {
				return err
			}
			if info, _ := cap.InfoFromContext(ctx); info.Attempt < 3 {
				return errors.New("not yet")
			}
			return nil
		}), subscribe.Group("retried")),
	}
}

// place writes an order and its message in one transaction, which fails with
// fail, if that is not nil, after both.
func (s *service) place(ctx context.Context, id string, fail error) error {
	return s.store.DB().WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Exec("INSERT INTO orders VALUES (?)", id).Error; err != nil {
			return err
		}
		if err := s.bus.Publish(ctx, tx, "order.placed", order{id}); err != nil {
			return err
		}
		return fail
	})
}

// start makes and starts a service, and stops it when the test ends.
func start(tb testing.TB, path string, change ...func(*cap.Options)) *service {
	tb.Helper()
	s, err := newService(tb.Context(), path, change...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.store.Close(); err != nil {
			tb.Error(err)
		}
	})
	if err := s.bus.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.bus.Stop(context.WithoutCancel(tb.Context())); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// column reads one column of strings.
func column(tb testing.TB, db *gorm.DB, query string, args ...any) []string {
	tb.Helper()
	var out []string
	if err := db.Raw(query, args...).Scan(&out).Error; err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return out
}

// number reads one number.
func number(tb testing.TB, db *gorm.DB, query string, args ...any) int {
	tb.Helper()
	var n int
	if err := db.Raw(query, args...).Scan(&n).Error; err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return n
}

// placeThen is as place, with something that happens before the commit.
func (s *service) placeThen(ctx context.Context, id string, then func()) error {
	return s.store.DB().WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Exec("INSERT INTO orders VALUES (?)", id).Error; err != nil {
			return err
		}
		if err := s.bus.Publish(ctx, tx, "order.placed", order{id}); err != nil {
			return err
		}
		then()
		return nil
	})
}
