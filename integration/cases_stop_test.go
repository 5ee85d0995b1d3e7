package integration

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/fx"
	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC169QuietStop: stopping under load, again and again, is no error to
// anybody, and nothing is lost or counted.
func TestC169QuietStop(t *testing.T) {
	t.Parallel()
	store, q := opened(t, file(t)), memqueue.New(memqueue.Config{})
	var log lines
	var j journal
	bus := made(t, store, q, serving(inGroup("t", j.handle)), logTo(&log, slog.LevelDebug))
	must(t, bus.Migrate(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var want []string
	var load sync.WaitGroup
	for w := range 4 {
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprint(w, "-", n)
				err := store.DB().Transaction(func(tx *gorm.DB) error { return bus.Publish(context.WithoutCancel(ctx), tx, "t", id) })
				if err != nil {
					t.Errorf("publish while starting and stopping: %v", err)
				}
				mu.Lock()
				want = append(want, id)
				mu.Unlock()
				<-time.After(3 * time.Millisecond)
			}
		})
	}
	for range 15 {
		must(t, bus.Start(t.Context()))
		n := j.len()
		j.wait(t, n+10)
		must(t, bus.Stop(t.Context()))
	}
	cancel()
	load.Wait()
	begun(t, bus)
	settled(t, store.DB(), window)
	j.exactly(t, want)
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "level=WARN") {
			t.Error(line)
		}
	}
}

// shop is an application on fx, with SQLite.
func shop(t *testing.T, path string, l *lines, handler func(ctx context.Context, db *gorm.DB, id string) error, more ...fx.Option) (*fx.App, *cap.Bus) {
	t.Helper()
	var bus *cap.Bus
	q := memqueue.New(memqueue.Config{})
	app := fx.New(append(more, fx.NopLogger,
		fx.Supply(short(nil, nil, logTo(l, slog.LevelInfo))),
		fx.Provide(
			cap.Module,
			func(lc fx.Lifecycle) (*gormstore.Store, error) {
				store, err := sqlite.Open(path, sqlite.Config{})
				if err == nil {
					lc.Append(fx.StopHook(func() error { l.note("database closed"); return store.Close() }))
				}
				return store, err
			},
			func(s *gormstore.Store) storage.Storage { return s },
			func() transport.Transport { return q },
		),
		cap.Handlers(func(s *gormstore.Store) subscribe.Subscription {
			return inGroup("t", func(ctx context.Context, id string) error { return handler(ctx, s.DB(), id) })
		}),
		fx.Populate(&bus))...)
	must(t, app.Err())
	return app, bus
}

func (l *lines) note(text string) { _, _ = fmt.Fprintln(l, text) }

// TestC173StartContextEnds: the bus lives longer than the context that it was
// started with.
func TestC173StartContextEnds(t *testing.T) {
	t.Parallel()
	var j journal
	var log lines
	app, bus := shop(t, file(t), &log, func(ctx context.Context, _ *gorm.DB, id string) error { return j.handle(ctx, id) },
		fx.StartTimeout(time.Second))
	ctx, cancel := context.WithTimeout(t.Context(), app.StartTimeout())
	defer cancel()
	must(t, app.Start(ctx))
	<-ctx.Done()
	<-time.After(window + time.Second) // a lease that nobody renews would have run out
	must(t, bus.Publish(t.Context(), cap.NoTx, "t", "m"))
	j.wait(t, 1)
	must(t, app.Stop(t.Context()))
	if strings.Contains(log.String(), "WARN") {
		t.Errorf("log: %s", log.String())
	}
}

// TestC175StopTimeoutOfFx: a handler that takes longer than the time for all
// hooks is cut before it is over, the database is closed after the bus, and the
// message is handled after the next start.
func TestC175StopTimeoutOfFx(t *testing.T) {
	t.Parallel()
	path := file(t)
	var log lines
	working := make(chan struct{})
	app, bus := shop(t, path, &log, func(ctx context.Context, db *gorm.DB, _ string) error {
		close(working)
		select {
		case <-ctx.Done():
		case <-time.After(patience):
		}
		err := db.Exec("SELECT 1").Error // the database is open still
		log.note(fmt.Sprintf("handler ended: %v, database %v", context.Cause(ctx), err))
		return ctx.Err()
	}, fx.StopTimeout(6*time.Second), fx.Invoke(func(lc fx.Lifecycle) {
		lc.Append(fx.StopHook(func() { <-time.After(500 * time.Millisecond) })) // it runs before ours and eats its time
	}))
	must(t, app.Start(t.Context()))
	must(t, bus.Publish(t.Context(), cap.NoTx, "t", "m"))
	<-working
	ctx, cancel := context.WithTimeout(t.Context(), app.StopTimeout())
	defer cancel()
	err := app.Stop(ctx)
	if ctx.Err() != nil || err == nil || !strings.Contains(err.Error(), "1 messages were in work") {
		t.Errorf("Stop: %v; its context: %v; want an error that says what was cut, in time", err, ctx.Err())
	}
	text := log.String()
	ended, stopped, closed := strings.Index(text, "handler ended: the bus is stopping, database <nil>"), strings.Index(text, "bus stopped"), strings.Index(text, "database closed")
	if ended < 0 || ended > stopped || stopped > closed {
		t.Errorf("order of the end:\n%s", text)
	}
	var j journal
	next := start(t, path, serving(inGroup("t", func(ctx context.Context, id string) error {
		info, _ := cap.InfoFromContext(ctx)
		return j.handle(ctx, fmt.Sprint(id, " ", info.Attempt))
	})), func(o *cap.Options) { o.FallbackWindow = time.Minute })
	j.wait(t, 1)
	settled(t, next.store.DB(), window)
	j.exactly(t, []string{"m 1"})
}
