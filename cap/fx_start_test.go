//go:build !capnofx

package cap_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/fx"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// TestAFailingStartLeavesNothingRunning: wherever the start of an application
// fails, no goroutine stays (the bubble would not end), what has been opened is
// closed after the bus, and the next application starts on the same storage.
func TestAFailingStartLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken on purpose")
	fail := fx.Invoke(func(lc fx.Lifecycle) { lc.Append(fx.StartHook(func() error { return broken })) })
	for name, c := range map[string]struct {
		before, after fx.Option
		prepare       func(u *unruly)
		late          bool
	}{
		"before the bus":                {before: fail},
		"after the bus":                 {after: fail},
		"the bus itself, storage":       {prepare: func(u *unruly) { failing(&u.check, broken) }},
		"the bus itself, half way":      {prepare: func(u *unruly) { failing(&u.join, broken) }},
		"the bus itself, as time is up": {prepare: func(u *unruly) { failing(&u.join, errWaits) }, late: true},
		"a constructor":                 {after: fx.Invoke(func() error { return broken })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &unruly{Storage: newStore()}
				queue := newQueue()
				closed := false
				var bus *cap.Bus
				var j *journal
				app := func(before, after fx.Option) *fx.App {
					return fx.New(fx.NopLogger, options(), fx.StartTimeout(10*time.Second),
						fx.Provide(newJournal, quietLogger, cap.Module,
							func() transport.Transport { return queue },
							func(lc fx.Lifecycle) storage.Storage {
								closed = false
								lc.Append(fx.StopHook(func() { closed = true }))
								return store
							}),
						fx.Invoke(func(storage.Storage) {}), before,
						cap.Handlers(func(j *journal) subscribe.Subscription { return subscribe.To("t", j.handler) }),
						after, fx.Populate(&bus, &j))
				}
				none := fx.Options()
				if c.prepare != nil {
					c.prepare(store)
				}
				first := app(or(c.before, none), or(c.after, none))
				err := errors.Join(first.Err(), started(first))
				if err == nil || !c.late && !strings.Contains(err.Error(), broken.Error()) {
					t.Fatalf("Start: %v, want %v", err, broken)
				}
				if first.Err() == nil && !c.late && !closed { // once time is up, fx calls no hook
					t.Error("the storage was left open")
				}
				synctest.Wait()

				failing(&store.check, nil)
				failing(&store.join, nil)
				second := app(none, none)
				if err := started(second); err != nil {
					t.Fatal(err)
				}
				if err := bus.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
					t.Error(err)
				}
				elapse(time.Second)
				if got := j.all(); len(got) != 1 {
					t.Errorf("the next application handled %v", got)
				}
				if err := second.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func or(o, otherwise fx.Option) fx.Option {
	if o == nil {
		return otherwise
	}
	return o
}

func started(app *fx.App) error {
	if app.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), app.StartTimeout())
	defer cancel()
	return app.Start(ctx)
}

// TestABusThatDoesNotStartIsNotTheDefault: nobody would stop it, and package
// functions would go on to use it.
func TestABusThatDoesNotStartIsNotTheDefault(t *testing.T) { //nolint:paralleltest // it looks at the default bus
	if b := cap.Default(); b != nil {
		t.Fatalf("there is a default bus already: %p", b)
	}
	var bus *cap.Bus
	app := func(opts ...fx.Option) *fx.App {
		return fx.New(fx.NopLogger, adapters(), fx.Provide(cap.Module), noHandlers(), fx.Populate(&bus), fx.Options(opts...))
	}
	if err := app(fx.Invoke(func() error { return errors.New("no") })).Err(); err == nil || bus == nil || cap.Default() != nil {
		t.Errorf("fx.New: %v; the default bus is %p", err, cap.Default())
	}
	second := app()
	if err := started(second); err != nil || cap.Default() != bus {
		t.Errorf("Start: %v; the default bus is %p, want %p", err, cap.Default(), bus)
	}
	if err := second.Stop(t.Context()); err != nil || cap.Default() != nil {
		t.Errorf("Stop: %v; the default bus is %p", err, cap.Default())
	}
}

// TestTimeIsUpInALaterHook: fx then calls no OnStop of anybody. Who goes on all
// the same, instead of ending the process as App.Run does, stops the bus.
func TestTimeIsUpInALaterHook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var bus *cap.Bus
		app := fx.New(fx.NopLogger, options(), adapters(), fx.Provide(cap.Module), fx.Populate(&bus), noHandlers(),
			fx.Invoke(func(lc fx.Lifecycle) {
				lc.Append(fx.StartHook(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
			}))
		if err := started(app); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Start: %v", err)
		}
		if err := bus.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
