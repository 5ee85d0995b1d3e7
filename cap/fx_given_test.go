//go:build !capnofx

package cap_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// What the bus is made of is given in Options, or by the container.

func newStore() *memstore.Store { return memstore.New(memstore.Config{}) }
func newQueue() *memqueue.Queue { return memqueue.New(memqueue.Config{}) }
func noHandlers() fx.Option     { return cap.Handlers() } // asks for the bus
func supply(o cap.Options) fx.Option {
	o.Registry = &subscribe.Registry{}
	return fx.Supply(o)
}

func as[T any](constructor any) fx.Option {
	return fx.Provide(fx.Annotate(constructor, fx.As(fx.Self()), fx.As(new(T))))
}

func TestWhatIsMissingOrGivenTwiceIsNamed(t *testing.T) {
	t.Parallel()
	const storageSays, transportSays = "provide a storage.Storage", "provide a transport.Transport"
	for name, c := range map[string]struct {
		opts      []fx.Option
		says, not []string
	}{
		"nothing": {
			nil,
			[]string{"cap: Module", "Options.Storage: is required", "Options.Transport: is required"},
			nil,
		},
		"storage of its own type": { // the container does not see that it is a storage.Storage
			[]fx.Option{fx.Provide(newStore), as[transport.Transport](newQueue)},
			[]string{"Options.Storage: is required", storageSays, "fx.As(new(storage.Storage))"},
			[]string{"Options.Transport"},
		},
		"transport of its own type": {
			[]fx.Option{as[storage.Storage](newStore), fx.Provide(newQueue)},
			[]string{"Options.Transport: is required", transportSays, "fx.As(new(transport.Transport))"},
			[]string{"Options.Storage"},
		},
		"a storage that needs what nobody provides": {
			[]fx.Option{fx.Provide(func(string) storage.Storage { return newStore() }), as[transport.Transport](newQueue)},
			[]string{storageSays, "needs what nobody provides"},
			nil,
		},
		"no transport in the options": {
			[]fx.Option{supply(cap.Options{Storage: newStore()})},
			[]string{transportSays},
			[]string{"Options.Storage"},
		},
		"storage twice": {
			[]fx.Option{supply(cap.Options{Storage: newStore()}), as[storage.Storage](newStore), as[transport.Transport](newQueue)},
			[]string{"Options.Storage: is given twice: *memstore.Store in Options.Storage, and *memstore.Store by the container, as storage.Storage", "leave one"},
			[]string{"required", "Transport"},
		},
		"all twice": {
			[]fx.Option{
				supply(cap.Options{Storage: newStore(), Transport: newQueue(), Logger: quietLogger()}),
				as[storage.Storage](newStore), as[transport.Transport](newQueue), fx.Provide(quietLogger),
			},
			[]string{"in Options.Storage", "in Options.Transport", "in Options.Logger", "as storage.Storage", "as transport.Transport", "as *slog.Logger"},
			[]string{"required"},
		},
		"a storage that cannot be compared": {
			[]fx.Option{
				supply(cap.Options{Storage: unequal{newStore(), nil}, Transport: newQueue()}),
				fx.Provide(func() storage.Storage { return unequal{newStore(), nil} }),
			},
			[]string{"Options.Storage: is given twice: cap_test.unequal in"},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := fx.New(append(c.opts, fx.NopLogger, fx.Provide(cap.Module), noHandlers())...).Err()
			var field *cap.FieldError
			if !errors.As(err, &field) {
				t.Fatalf("%v, want a *FieldError", err)
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v\ndoes not say %q", err, text)
				}
			}
			for _, text := range c.not {
				if strings.Contains(err.Error(), text) {
					t.Errorf("%v\nsays %q", err, text)
				}
			}
		})
	}
}

// unequal cannot be compared with ==.
type unequal struct {
	storage.Storage

	_ []int
}

// TestOneValueInBothPlaces: options are often made of what is in the container.
func TestOneValueInBothPlaces(t *testing.T) {
	t.Parallel()
	var bus *cap.Bus
	var store *memstore.Store
	var out lockedBuffer
	app := fxtest.New(t, as[storage.Storage](newStore), as[transport.Transport](newQueue),
		fx.Provide(func() *slog.Logger { return slog.New(slog.NewTextHandler(&out, nil)) },
			func(s storage.Storage, tr transport.Transport, log *slog.Logger) cap.Options {
				return cap.Options{Storage: s, Transport: tr, Logger: log, Registry: &subscribe.Registry{}}
			}, cap.Module),
		fx.Populate(&bus, &store))
	app.RequireStart()
	if err := bus.Publish(t.Context(), cap.NoTx, "nobody", 1); err != nil {
		t.Fatal(err)
	}
	app.RequireStop()
	if n := len(store.Records(storage.Outbox)); n != 1 {
		t.Errorf("%d rows in the storage of the options, want 1", n)
	}
	if !strings.Contains(out.String(), "bus started") {
		t.Error("the logger of the options was not used")
	}
}

// TestOptionsAlone: everything is in the options.
func TestOptionsAlone(t *testing.T) {
	t.Parallel()
	var bus *cap.Bus
	store := newStore()
	app := fxtest.New(t, supply(cap.Options{Storage: store, Transport: newQueue(), Logger: quietLogger()}),
		fx.Provide(cap.Module), fx.Populate(&bus))
	app.RequireStart()
	if err := bus.Publish(t.Context(), cap.NoTx, "nobody", 1); err != nil {
		t.Fatal(err)
	}
	app.RequireStop()
	if n := len(store.Records(storage.Outbox)); n != 1 {
		t.Errorf("%d rows in the storage of the options, want 1", n)
	}
}
