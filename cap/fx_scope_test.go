//go:build !capnofx

package cap_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// branch is a module with a bus of its own, on a queue of all. What it publishes
// with is known outside by its name.
func branch(name string, opts ...fx.Option) fx.Option {
	private := func(b *cap.Bus) cap.Publisher { return b }
	return fx.Module(name, append(opts,
		fx.Provide(func() cap.Options { return cap.Options{DefaultGroupName: name, Registry: &subscribe.Registry{}} }, fx.Private),
		fx.Provide(fx.Annotate(newStore, fx.As(fx.Self()), fx.As(new(storage.Storage))), fx.Private),
		fx.Provide(newJournal, cap.Module, fx.Private),
		fx.Provide(fx.Annotate(private, fx.ResultTags(`name:"`+name+`"`))),
	)...)
}

// TestTwoBusesInOneApplication: each has a storage and handlers of its own, and
// what one publishes, the other handles once.
func TestTwoBusesInOneApplication(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var in struct {
			fx.In
			Orders  cap.Publisher `name:"orders"`
			Billing cap.Publisher `name:"billing"`
		}
		journals, stores := map[string]*journal{}, map[string]*memstore.Store{}
		keep := func(name string) fx.Option {
			return fx.Invoke(func(j *journal, s *memstore.Store) { journals[name], stores[name] = j, s })
		}
		handle := cap.Handlers(func(j *journal) subscribe.Subscription { return subscribe.To("#", j.handler) }) // one value in both
		app := fxtest.New(t, fx.Provide(func() transport.Transport { return newQueue() }, quietLogger),
			branch("orders", handle, keep("orders")),
			branch("billing", handle, keep("billing"),
				cap.Handlers(func(j *journal) subscribe.Subscription {
					return subscribe.To("#", j.handler, subscribe.Group("audit"))
				})),
			fx.Populate(&in))
		app.RequireStart()
		if err := in.Orders.Publish(t.Context(), cap.NoTx, "order.placed", "from orders"); err != nil {
			t.Error(err)
		}
		if err := in.Billing.Publish(t.Context(), cap.NoTx, "order.charged", "from billing"); err != nil {
			t.Error(err)
		}
		elapse(time.Second)
		app.RequireStop()
		for name, times := range map[string]int{"orders": 1, "billing": 2} { // subscriptions of each
			want := slices.Concat(slices.Repeat([]string{"from billing"}, times), slices.Repeat([]string{"from orders"}, times))
			if got := journals[name].sorted(); !slices.Equal(got, want) {
				t.Errorf("%s handled %v, want %v", name, got, want)
			}
			sent, received := stores[name].Records(storage.Outbox), stores[name].Records(storage.Inbox)
			if len(sent) != 1 || len(received) != 2*times {
				t.Errorf("the storage of %s has %d rows published and %d received, want 1 and %d", name, len(sent), len(received), 2*times)
			}
		}
	})
}

// TestTwoBusesOnOneRegistry: without registries of their own, the second would
// serve what the first does, and is refused.
func TestTwoBusesOnOneRegistry(t *testing.T) {
	t.Parallel()
	one := func(name string) fx.Option {
		return fx.Module(name, fx.Provide(fx.Annotate(newStore, fx.As(new(storage.Storage))), cap.Module, fx.Private), noHandlers())
	}
	app := fx.New(fx.NopLogger, fx.Provide(func() transport.Transport { return newQueue() }, quietLogger), options(), one("a"), one("b"))
	err := app.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), subscribe.ErrRegistryInUse.Error()) {
		t.Errorf("Start: %v, want ErrRegistryInUse", err)
	}
}

// TestHandlersOfModulesAreServedByTheBusOfAll: services are often modules.
func TestHandlersOfModulesAreServedByTheBusOfAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type started struct{}
		var order []string
		var bus *cap.Bus
		var j *journal
		service := func(name string) fx.Option {
			needs := func(lc fx.Lifecycle) started {
				lc.Append(fx.StartStopHook(
					func() { order = append(order, name+" starts") },
					func() { order = append(order, name+" stops") }))
				return started{}
			}
			return fx.Module(name, fx.Provide(needs, fx.Private), cap.Handlers(func(_ started, j *journal) subscribe.Subscription {
				return subscribe.To("t", j.handler, subscribe.Group(name))
			}))
		}
		log := func() *slog.Logger { return slog.New(slog.NewTextHandler(noting(&order), nil)) }
		app := fxtest.New(t, options(), fx.Provide(newJournal, log, cap.Module,
			func() storage.Storage { return newStore() }, func() transport.Transport { return newQueue() }),
			service("files"), service("coupons"), fx.Populate(&bus, &j),
			fx.Invoke(func(lc fx.Lifecycle) { // as a server of requests
				lc.Append(fx.StartStopHook(
					func() { order = append(order, "server starts") },
					func() { order = append(order, "server stops") }))
			}))
		app.RequireStart()
		if err := bus.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
			t.Error(err)
		}
		elapse(time.Second)
		app.RequireStop()
		if got := j.all(); len(got) != 2 {
			t.Errorf("handled %v, want the message once for each module", got)
		}
		want := []string{
			"files starts", "coupons starts", "bus started", "server starts",
			"server stops", "bus stopped", "coupons stops", "files stops",
		}
		if !slices.Equal(order, want) {
			t.Errorf("order %v,\n want %v", order, want)
		}
	})
}

// noting takes log lines and notes those of the life of the bus.
func noting(order *[]string) writerFunc {
	return func(p []byte) (int, error) {
		for _, text := range []string{"bus started", "bus stopped"} {
			if strings.Contains(string(p), text) {
				*order = append(*order, text)
			}
		}
		return len(p), nil
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestALoggerOfTheBusAlone: where the container has one for all, a module has
// another, by fx.Decorate.
func TestALoggerOfTheBusAlone(t *testing.T) {
	t.Parallel()
	var out lockedBuffer
	app := fxtest.New(t, options(), adapters(), fx.Module("bus", fx.Provide(cap.Module),
		fx.Decorate(func(*slog.Logger) *slog.Logger { return slog.New(slog.NewTextHandler(&out, nil)) })), noHandlers())
	app.RequireStart().RequireStop()
	if !strings.Contains(out.String(), "bus started") {
		t.Error("the bus has not used the logger of its module")
	}
}
