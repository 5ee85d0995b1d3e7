//go:build !capnofx

// Command fxservice runs a shop and its coupons, wired with fx: two services in
// one application, each a module with a database and a bus of its own. One line
// below says whether they use PostgreSQL and RabbitMQ, or SQLite and a queue in
// this process.
//
//	go run ./examples/fxservice
//
// The same services without fx: examples/fxservice/plain.
package main

import (
	"context"

	"go.uber.org/fx"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/examples/fxservice/services"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

func main() {
	place := services.Servers("postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable", "amqp://guest:guest@127.0.0.1:5672/")
	// place := services.Files(".") // the same without any server

	fx.New(application(place), fx.Invoke(demo)).Run()
}

// application is both services. Each could as well be a program of its own.
func application(place services.Place) fx.Option {
	return fx.Options(
		fx.Supply(place),
		fx.Provide(fx.Annotate(
			func(p services.Place) transport.Transport { return p.Transport },
			fx.OnStop(func(p services.Place) error { return p.Close() }),
		)),
		service("shop", fx.Provide(services.NewShop), cap.Handlers(
			func(s *services.Shop) ([]subscribe.Subscription, error) { return subscribe.Tagged(s) },
		)),
		service("coupon", fx.Provide(services.NewCoupons), cap.Handlers(
			func(c *services.Coupons) ([]subscribe.Subscription, error) { return subscribe.Tagged(c) },
		)),
	)
}

// service is a module with a database and a bus of its own, which nothing outside
// of it sees. An application with one bus needs neither module nor fx.Private.
func service(name string, opts ...fx.Option) fx.Option {
	open := func(p services.Place) (*gormstore.Store, error) { return p.Open(name) }
	return fx.Module(name, append(opts, fx.Provide(
		fx.Annotate(open, fx.As(fx.Self()), fx.As(new(storage.Storage)), fx.OnStop((*gormstore.Store).Close)),
		func(p services.Place) cap.Options {
			return cap.Options{DefaultGroupName: name, Version: p.Version, Registry: &subscribe.Registry{}}
		},
		cap.Module,
		fx.Private,
	))...)
}

// demo does something when everything runs.
func demo(lc fx.Lifecycle, shop *services.Shop, coupons *services.Coupons) {
	lc.Append(fx.StartHook(func(ctx context.Context) error { return services.Demo(ctx, shop, coupons) }))
}
