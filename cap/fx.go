//go:build !capnofx

package cap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"

	"go.uber.org/fx"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// ModuleParams is what Module takes from the container. Storage, Transport and
// Logger are given here or in Options, not in both. The container tells values
// apart by their type, so adapters are provided as the interfaces, beside what
// they are, if that is needed, too:
//
//	fx.Annotate(newStore, fx.As(fx.Self()), fx.As(new(storage.Storage)))
//
// fx leaves out what is optional, without a word, also when something is missing
// that its constructor needs.
type ModuleParams struct {
	fx.In

	Lifecycle     fx.Lifecycle
	Options       Options                  `optional:"true"`
	Storage       storage.Storage          `optional:"true"`
	Transport     transport.Transport      `optional:"true"`
	Logger        *slog.Logger             `optional:"true"`
	Subscriptions []subscribe.Subscription `group:"cap.subscriptions"`
}

// ModuleResult is what Module gives.
type ModuleResult struct {
	fx.Out

	Bus       *Bus
	Publisher Publisher
}

// Module is a constructor for fx.Provide, so it starts nothing by itself: the bus
// is made, and starts and stops with the application, when something asks for
// *Bus or Publisher. A service that only consumes uses Handlers, which asks for
// it. Module opens nothing and starts no goroutine. Where Options.Registry is nil,
// the bus is the default one from its start on.
//
// A second bus of an application is private to an fx.Module, with what it is
// made of: fx.Provide(newOptions, newStore, cap.Module, fx.Private). Each has a
// Registry of its own in its Options. What is in the group cap.subscriptions is
// served by every bus that sees it.
//
// A program that only publishes, and has no transport, makes its bus with New.
//
// Errors: Storage or Transport is missing, something is given twice, and those
// of New.
func Module(p ModuleParams) (ModuleResult, error) {
	opts, err := p.options()
	if err != nil {
		return ModuleResult{}, fmt.Errorf("cap: Module: %w", err)
	}
	bus, err := New(opts)
	if err != nil {
		return ModuleResult{}, err
	}
	defaultBus.CompareAndSwap(bus, nil) // until it starts: nobody stops the bus of an application that does not
	bus.hook(p.Lifecycle)
	return ModuleResult{Bus: bus, Publisher: bus}, nil
}

// options puts together what is given in Options and by the container.
func (p ModuleParams) options() (Options, error) {
	o := p.Options
	err := errors.Join(
		pick(&o.Storage, p.Storage, "Storage", "storage.Storage"),
		pick(&o.Transport, p.Transport, "Transport", "transport.Transport"),
		pick(&o.Logger, p.Logger, "Logger", "*slog.Logger"),
		required(o.Storage, "Storage", "storage.Storage"),
		required(o.Transport, "Transport", "transport.Transport"),
	)
	o.Subscriptions = slices.Concat(o.Subscriptions, p.Subscriptions)
	return o, err
}

// pick takes what the container provides, if it does. One value in both places is
// no contradiction: Options may be made of what is in the container.
func pick[T comparable](option *T, provided T, field, typ string) error {
	var none T
	if provided == none || same(*option, provided) {
		return nil
	}
	if *option != none {
		return &FieldError{Field: field, Problem: fmt.Sprintf("is given twice: %T in Options.%s, and %T by the container, as %s; leave one of them out "+
			"(in an fx.Module, fx.Private and fx.Decorate give the bus one of its own)", *option, field, provided, typ)}
	}
	*option = provided
	return nil
}

// same does not panic, as == of interfaces can.
func same(a, b any) bool { return reflect.ValueOf(a).Comparable() && a == b }

func required(v any, field, typ string) error {
	if v != nil {
		return nil
	}
	return &FieldError{Field: field, Problem: fmt.Sprintf("is required: give it in Options.%s, or provide a %s; a constructor that returns another type "+
		"provides one by fx.Provide(fx.Annotate(constructor, fx.As(fx.Self()), fx.As(new(%s)))), "+
		"and one that needs what nobody provides counts as none", field, typ, typ)}
}

// hook lets the bus start at this place in the order of the application, and stop
// at it, unless there is a later one.
func (b *Bus) hook(lc fx.Lifecycle) {
	b.hooks++ // nothing runs before the hooks
	place := b.hooks
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			if place < b.hooks {
				return nil
			}
			return b.Start(ctx)
		},
		OnStop: b.Stop, // the latest comes first; for the others there is nothing to do
	})
}

// Handlers registers constructors of subscriptions and asks for the bus that
// Module, also given to fx, makes, so that a service that only consumes starts. A
// constructor returns a
// subscribe.Subscription or a slice of them, and optionally an error; its
// parameters come from the container, *Bus and Publisher among them. In an
// fx.Module, bus and parameters are those that the module sees. The bus starts
// after all that the handlers need, and stops before.
func Handlers(ctors ...any) fx.Option {
	group := `group:"cap.handlers.` + NewID() + `"` // of this call alone, as its subscriptions are for one bus
	opts := make([]fx.Option, 0, len(ctors)+1)
	for _, ctor := range ctors {
		flatten, err := isSlice(ctor)
		if err != nil {
			return fx.Error(fmt.Errorf("cap: Handlers: %w", err))
		}
		tag := group
		if flatten {
			tag = strings.TrimSuffix(group, `"`) + `,flatten"`
		}
		opts = append(opts, fx.Provide(fx.Annotate(ctor, fx.ResultTags(tag)), fx.Private))
	}
	return fx.Options(append(opts, fx.Invoke(fx.Annotate(serve, fx.ParamTags("", `optional:"true"`, group))))...)
}

// serve gives the bus the subscriptions of one call of Handlers. The bus does not
// depend on them, or a service that publishes could not be a handler.
func serve(lc fx.Lifecycle, b *Bus, subs []subscribe.Subscription) error {
	if b == nil {
		return errors.New("cap: Handlers: there is no *cap.Bus to serve them; fx.Provide(cap.Module), in the same fx.Module or one around it, provides it")
	}
	var errs []error
	for _, s := range subs {
		errs = append(errs, s.Validate())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cap: Handlers: %w", err)
	}
	b.more = append(b.more, subs...)
	b.hook(lc)
	return nil
}

// isSlice tells whether a constructor returns one subscription or a slice.
func isSlice(ctor any) (bool, error) {
	t := reflect.TypeOf(ctor)
	if t == nil || t.Kind() != reflect.Func {
		return false, fmt.Errorf("%T is not a constructor; give a function that returns a subscribe.Subscription", ctor)
	}
	if t.NumOut() == 1 || t.NumOut() == 2 && t.Out(1) == reflect.TypeFor[error]() {
		switch t.Out(0) {
		case reflect.TypeFor[subscribe.Subscription]():
			return false, nil
		case reflect.TypeFor[[]subscribe.Subscription]():
			return true, nil
		}
	}
	return false, errors.New(t.String() + " does not return a subscribe.Subscription or a slice of them, and optionally an error; " +
		"of a struct with tags, subscribe.Tagged makes them")
}
