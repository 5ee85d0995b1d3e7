//go:build !capnofx

package cap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"go.uber.org/fx"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// ModuleParams is what Module takes from the container. What Options name goes
// before Storage, Transport and Logger. The container tells values apart by
// their type: it takes Options for *Options as little as a *gormstore.Store for a
// storage.Storage, and passes over what is optional and not there. So adapters are
// provided as the interfaces:
//
//	fx.Annotate(newStore, fx.As(fx.Self()), fx.As(new(storage.Storage)))
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
// it. Module opens nothing and starts no goroutine.
func Module(p ModuleParams) (ModuleResult, error) {
	opts := p.Options
	if opts.Storage == nil {
		opts.Storage = p.Storage
	}
	if opts.Transport == nil {
		opts.Transport = p.Transport
	}
	if opts.Logger == nil {
		opts.Logger = p.Logger
	}
	opts.Subscriptions = append(opts.Subscriptions[:len(opts.Subscriptions):len(opts.Subscriptions)], p.Subscriptions...)
	const contracts = "the container needs a storage.Storage and a transport.Transport: " +
		"provide adapters as these interfaces, with fx.Annotate and fx.As, or in Options"
	if opts.Storage != nil && opts.Transport == nil { // New would take it, and Start refuse it
		return ModuleResult{}, fmt.Errorf("cap: Module: %w (%s)", errNoTransport, contracts)
	}
	bus, err := New(opts)
	switch {
	case err != nil && opts.Storage == nil:
		return ModuleResult{}, fmt.Errorf("%w (%s)", err, contracts)
	case err != nil:
		return ModuleResult{}, err
	}
	p.Lifecycle.Append(fx.Hook{OnStart: bus.startFirst, OnStop: bus.Stop})
	return ModuleResult{Bus: bus, Publisher: bus}, nil
}

// Handlers registers constructors of subscriptions and asks for the bus that
// Module, also given to fx, makes, so that a service that only consumes starts. A constructor returns a
// subscribe.Subscription or a slice of them, and optionally an error; its
// parameters come from the container, *Bus and Publisher among them.
func Handlers(ctors ...any) fx.Option {
	opts := make([]fx.Option, 0, len(ctors)+1)
	for _, ctor := range ctors {
		tag, err := groupTag(ctor)
		if err != nil {
			return fx.Error(fmt.Errorf("cap: Handlers: %w", err))
		}
		opts = append(opts, fx.Provide(fx.Annotate(ctor, fx.ResultTags(tag))))
	}
	return fx.Options(append(opts, fx.Invoke(serve))...)
}

// handlersParams has the bus and all that Handlers have registered. The bus does
// not depend on them, or a service that publishes could not be a handler.
type handlersParams struct {
	fx.In

	Lifecycle     fx.Lifecycle
	Bus           *Bus
	Subscriptions []subscribe.Subscription `group:"cap.handlers"`
}

// startFirst is Start, unless there are Handlers: then the bus starts after what
// they need.
func (b *Bus) startFirst(ctx context.Context) error {
	if b.handlers {
		return nil
	}
	return b.Start(ctx)
}

// serve runs once for each use of Handlers, and gets the same each time. Its hook
// comes after those of all that the handlers need, so the bus starts after them
// and stops before.
func serve(p handlersParams) error {
	var errs []error
	for _, s := range p.Subscriptions {
		errs = append(errs, s.Validate())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cap: Handlers: %w", err)
	}
	if !p.Bus.handlers {
		p.Bus.handlers, p.Bus.more = true, p.Subscriptions // nothing runs before the hooks
		p.Lifecycle.Append(fx.Hook{OnStart: p.Bus.Start, OnStop: p.Bus.Stop})
	}
	return nil
}

func groupTag(ctor any) (string, error) {
	t := reflect.TypeOf(ctor)
	if t == nil || t.Kind() != reflect.Func {
		return "", fmt.Errorf("%T is not a constructor; give a function that returns a subscribe.Subscription", ctor)
	}
	ok := t.NumOut() == 1 || t.NumOut() == 2 && t.Out(1) == reflect.TypeFor[error]()
	switch {
	case ok && t.Out(0) == reflect.TypeFor[subscribe.Subscription]():
		return `group:"cap.handlers"`, nil
	case ok && t.Out(0) == reflect.TypeFor[[]subscribe.Subscription]():
		return `group:"cap.handlers,flatten"`, nil
	}
	return "", errors.New(t.String() + " does not return a subscribe.Subscription or a slice of them, and optionally an error; " +
		"of a struct with tags, subscribe.Tagged makes them")
}
