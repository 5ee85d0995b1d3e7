//go:build !capnofx

package cap_test

import (
	"context"
	"errors"
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
	"github.com/capbus/gocap/transport/memqueue"
)

// adapters provides the memory adapters as the contracts that Module asks for.
func adapters() fx.Option {
	return fx.Provide(
		func() storage.Storage { return memstore.New(memstore.Config{}) },
		func() transport.Transport { return memqueue.New(memqueue.Config{}) },
		quietLogger,
		newJournal,
	)
}

// options have a registry of their own, so that no test touches the default one.
func options() fx.Option {
	return fx.Supply(cap.Options{DefaultGroupName: "billing", Registry: &subscribe.Registry{}})
}

func TestModuleIsAConstructor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var bus *cap.Bus
		var publisher cap.Publisher
		var j *journal
		app := fxtest.New(t, options(), adapters(), fx.Provide(cap.Module), cap.Handlers(
			func(j *journal) subscribe.Subscription { return subscribe.To("one", j.handler) },
			func(j *journal) []subscribe.Subscription {
				return []subscribe.Subscription{subscribe.To("two", j.handler), subscribe.To("three", j.handler)}
			},
			func(j *journal) (subscribe.Subscription, error) { return subscribe.To("four", j.handler), nil },
			func(j *journal) ([]subscribe.Subscription, error) {
				return []subscribe.Subscription{subscribe.To("five", j.handler)}, nil
			},
		), fx.Populate(&bus, &publisher, &j))
		app.RequireStart()
		if publisher != cap.Publisher(bus) {
			t.Error("the Publisher is not the bus")
		}
		topics := []string{"five", "four", "one", "three", "two"}
		for _, topic := range topics {
			if err := publisher.Publish(t.Context(), cap.NoTx, topic, topic); err != nil {
				t.Fatal(err)
			}
		}
		elapse(time.Second)
		if got := j.sorted(); !slices.Equal(got, topics) {
			t.Errorf("handled %v, want %v", got, topics)
		}
		app.RequireStop()
	})
}

// Case C173: fx's start context ends when the start is over, or after 15 s.
func TestTheBusOutlivesTheStartContextOfFx(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var bus *cap.Bus
		var j *journal
		app := fx.New(options(), adapters(), fx.NopLogger, fx.Provide(cap.Module),
			cap.Handlers(func(j *journal) subscribe.Subscription { return subscribe.To("t", j.handler) }),
			fx.Populate(&bus, &j))
		ctx, cancel := context.WithTimeout(t.Context(), app.StartTimeout())
		if err := app.Start(ctx); err != nil {
			t.Fatal(err)
		}
		elapse(app.StartTimeout() + 5*time.Second)
		cancel()
		elapse(40 * time.Second)
		if err := bus.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
			t.Fatal(err)
		}
		elapse(time.Second)
		if got := j.all(); len(got) != 1 {
			t.Errorf("handled %v after a minute, want the message", got)
		}
		if err := app.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestNothingStartsWhenNobodyAsks(t *testing.T) {
	t.Parallel()
	made := false
	app := fxtest.New(t, options(), fx.Supply(quietLogger()), fx.Provide(cap.Module,
		func() storage.Storage { made = true; return memstore.New(memstore.Config{}) }))
	app.RequireStart().RequireStop()
	if made {
		t.Error("Module ran though nobody asked for the bus")
	}
}

func TestHandlersAloneStartTheBus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var queue transport.Transport
		var j *journal
		app := fxtest.New(t, options(), adapters(), fx.Provide(cap.Module),
			cap.Handlers(func(j *journal) subscribe.Subscription { return subscribe.To("t", j.handler) }),
			fx.Populate(&queue, &j))
		app.RequireStart()
		if n := queue.(*memqueue.Queue).Inject(&cap.Message{Topic: "t", Body: []byte(`"m"`)}); n != 1 {
			t.Errorf("%d groups take the topic, want 1", n)
		}
		elapse(time.Second)
		if got := j.all(); len(got) != 1 {
			t.Errorf("handled %v", got)
		}
		app.RequireStop()
	})
}

// The bus stops before what it uses, and before what its handlers use.
func TestTheBusStopsFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type service struct{ closed bool }
		var order []string
		var bus *cap.Bus
		var store storage.Storage
		started := make(chan struct{})
		app := fxtest.New(t, options(), fx.Provide(cap.Module, quietLogger,
			func(lc fx.Lifecycle) storage.Storage {
				lc.Append(fx.StopHook(func() { order = append(order, "storage") }))
				return memstore.New(memstore.Config{})
			},
			func() transport.Transport { return memqueue.New(memqueue.Config{}) },
			func(lc fx.Lifecycle) *service {
				s := &service{}
				lc.Append(fx.StopHook(func() { s.closed = true; order = append(order, "service") }))
				return s
			}),
			cap.Handlers(func(s *service) subscribe.Subscription {
				return subscribe.To("t", func(context.Context, string) error {
					close(started)
					pause(5 * time.Second)
					if s.closed {
						return errors.New("the service is closed")
					}
					order = append(order, "handler")
					return nil
				})
			}), fx.Populate(&bus, &store))
		app.RequireStart()
		if err := bus.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
			t.Fatal(err)
		}
		<-started
		app.RequireStop()
		slices.Sort(order[1:])
		if !slices.Equal(order, []string{"handler", "service", "storage"}) {
			t.Errorf("stopped in the order %v, want the handler first", order)
		}
		for _, rec := range store.(*memstore.Store).Records(storage.Inbox) {
			if rec.Status != storage.Succeeded {
				t.Errorf("the row is %v, want succeeded", rec.Status)
			}
		}
	})
}

func TestErrorsOfTheModuleNameTheField(t *testing.T) {
	t.Parallel()
	failed := errors.New("no handlers today")
	sub := func() subscribe.Subscription { return subscribe.Subscription{} }
	for name, c := range map[string]struct {
		opts []fx.Option
		says []string
	}{
		"bad options": {
			[]fx.Option{adapters(), fx.Supply(cap.Options{PollInterval: -1, MaxHeaders: -1, Registry: &subscribe.Registry{}}), cap.Handlers()},
			[]string{"Options.PollInterval", "Options.MaxHeaders"},
		},
		"zero subscription": {
			[]fx.Option{options(), adapters(), cap.Handlers(sub)},
			[]string{"cap: Handlers", "subscribe.To"},
		},
		"constructor fails": {
			[]fx.Option{options(), adapters(), cap.Handlers(func() (subscribe.Subscription, error) { return sub(), failed })},
			[]string{"no handlers today"},
		},
		"no function":      {[]fx.Option{cap.Handlers(5)}, []string{"cap: Handlers: int is not a constructor"}},
		"nil":              {[]fx.Option{cap.Handlers(nil)}, []string{"cap: Handlers: <nil> is not a constructor"}},
		"a value":          {[]fx.Option{cap.Handlers(sub())}, []string{"subscribe.Subscription is not a constructor"}},
		"no result":        {[]fx.Option{cap.Handlers(func() {})}, []string{"func() does not return a subscribe.Subscription"}},
		"only an error":    {[]fx.Option{cap.Handlers(func() error { return nil })}, []string{"func() error does not return"}},
		"wrong result":     {[]fx.Option{cap.Handlers(func() int { return 1 })}, []string{"func() int does not return a subscribe.Subscription or a slice", "subscribe.Tagged"}},
		"wrong second":     {[]fx.Option{cap.Handlers(func() (subscribe.Subscription, int) { return sub(), 1 })}, []string{"does not return"}},
		"without a module": {[]fx.Option{cap.Handlers(sub)}, []string{"cap: Handlers: there is no *cap.Bus", "fx.Provide(cap.Module)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := append(c.opts, fx.NopLogger)
			if name != "without a module" {
				opts = append(opts, fx.Provide(cap.Module))
			}
			err := fx.New(opts...).Err()
			if err == nil {
				t.Fatal("no error")
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v does not say %q", err, text)
				}
			}
		})
	}
}

func TestTheSubscriptionsOfTheOptionsAreNotChanged(t *testing.T) {
	t.Parallel()
	j := newJournal()
	own := make([]subscribe.Subscription, 1, 10)
	own[0] = subscribe.To("own", j.handler)
	opts := cap.Options{Registry: &subscribe.Registry{}, Subscriptions: own}
	app := fxtest.New(t, fx.Supply(opts), adapters(), fx.Provide(cap.Module),
		cap.Handlers(func() subscribe.Subscription { return subscribe.To("more", j.handler) }))
	app.RequireStart().RequireStop()
	if spare := own[:2]; spare[1].String() != `""` { //nolint:gosec // its capacity is 10
		t.Errorf("Module wrote %s into the caller's slice", spare[1])
	}
}

// shop publishes, and handles.
type shop struct {
	publisher cap.Publisher
	journal   *journal
}

func (s *shop) placed(ctx context.Context, m string) error {
	s.journal.add(m)
	return s.publisher.Publish(ctx, nil, "charged", m)
}

func (s *shop) charged(_ context.Context, m string) error {
	s.journal.add("charged " + m)
	return nil
}

// TestAHandlerMayPublish: it takes the Publisher from the container, in which
// the bus does not depend on the handlers.
func TestAHandlerMayPublish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s *shop
		app := fxtest.New(t, options(), adapters(),
			fx.Provide(cap.Module, func(p cap.Publisher, j *journal) *shop { return &shop{p, j} }),
			cap.Handlers(func(s *shop) subscribe.Subscription { return subscribe.To("placed", s.placed) }),
			cap.Handlers(func(s *shop) []subscribe.Subscription {
				return []subscribe.Subscription{subscribe.To("charged", s.charged)}
			}),
			fx.Populate(&s))
		app.RequireStart()
		if err := s.publisher.Publish(t.Context(), cap.NoTx, "placed", "1"); err != nil {
			t.Error(err)
		}
		elapse(time.Second)
		if got := s.journal.all(); !slices.Equal(got, []string{"1", "charged 1"}) {
			t.Errorf("handled %v", got)
		}
		app.RequireStop()
	})
}
