package integration

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

const quietSignal = syscall.SIGUSR1

// swarmMain is a process of the swarm: it works until its standard input ends,
// and places orders until quietSignal.
func swarmMain() {
	ctx := context.Background()
	if err := swarmRun(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

func swarmRun(ctx context.Context) error {
	var db swarmDB
	for _, d := range swarmDBs() {
		if d.name == os.Getenv("GOCAP_TEST_KIND") {
			db = d
		}
	}
	store, err := db.open(os.Getenv("GOCAP_TEST_DB"))
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // the process ends
	s := &service{store: store, queue: memqueue.New(memqueue.Config{})}
	s.bus, err = cap.New(cap.Options{
		Storage: store, Transport: s.queue, Registry: &subscribe.Registry{}, Subscriptions: s.swarmSubscriptions(db),
		Logger:         slog.New(slog.NewTextHandler(logs(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		FallbackWindow: swarmWindow, PollInterval: 200 * time.Millisecond, Concurrency: 3,
		UseStorageLock: os.Getenv("GOCAP_SWARM_LOCK") == "1",
	})
	if err != nil {
		return err
	}
	if err := s.bus.Start(ctx); err != nil {
		return err
	}
	loading, quiet := signal.NotifyContext(ctx, quietSignal)
	defer quiet()
	var wg sync.WaitGroup
	s.swarmLoad(loading, &wg, swarmPause())
	say("loaded")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	wg.Wait()
	return s.bus.Stop(ctx)
}

func swarmPause() time.Duration {
	d, err := time.ParseDuration(os.Getenv("GOCAP_SWARM_PAUSE"))
	if err != nil {
		return 20 * time.Millisecond
	}
	return d
}

func (s *service) swarmSubscriptions(db swarmDB) []subscribe.Subscription {
	return []subscribe.Subscription{
		subscribe.To("order.placed", gormstore.Handle(func(_ context.Context, tx *gorm.DB, o order) error {
			return tx.Exec("INSERT INTO effects (id) VALUES (?)", o.ID).Error
		}), subscribe.Group("effects")),
		subscribe.To("order.placed", func(ctx context.Context, o order) error {
			return s.alone(ctx, db, o.ID, func() error {
				return s.store.DB().WithContext(ctx).Exec("INSERT INTO handled VALUES (?)", o.ID).Error
			})
		}, subscribe.Group("handled")),
	}
}

// alone notes it when another living process handles the same order.
func (s *service) alone(ctx context.Context, db swarmDB, id string, f func() error) error {
	pool := s.store.DB().WithContext(ctx)
	put := pool.Exec(db.put, id, os.Getpid())
	if put.Error != nil {
		return put.Error
	}
	if put.RowsAffected == 0 {
		var pid int
		if err := pool.Raw("SELECT pid FROM working WHERE id = ?", id).Scan(&pid).Error; err != nil {
			return err
		}
		if pid != 0 && alive(pid) {
			note := fmt.Sprintf("order %s is handled by %d while %d handles it", id, os.Getpid(), pid)
			if err := pool.Exec("INSERT INTO violations VALUES (?)", note).Error; err != nil {
				return err
			}
		}
		if err := pool.Exec("UPDATE working SET pid = ? WHERE id = ?", os.Getpid(), id).Error; err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	return pool.Exec("DELETE FROM working WHERE id = ?", id).Error
}
