// Command plain runs the services of examples/fxservice without fx: what a
// container does there is written out here.
//
//	go run ./examples/fxservice/plain
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/examples/fxservice/services"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
)

func main() {
	place := services.Servers("postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable", "amqp://guest:guest@127.0.0.1:5672/")
	// place := services.Files(".") // the same without any server

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, place, services.Demo); err != nil {
		log.Fatal(err)
	}
}

// run runs both services until ctx ends. Each could as well be a program of its own.
func run(ctx context.Context, place services.Place, demo func(context.Context, *services.Shop, *services.Coupons) error) (err error) {
	defer func() { err = errors.Join(err, place.Close()) }()
	shop, stopShop, err := start(ctx, place, "shop", services.NewShop)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopShop()) }()
	coupons, stopCoupons, err := start(ctx, place, "coupon", services.NewCoupons)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopCoupons()) }()
	if err := demo(ctx, shop, coupons); err != nil {
		return err
	}
	<-ctx.Done() // Ctrl-C
	return nil
}

// start starts a service with a database and a bus of its own.
func start[S any](ctx context.Context, place services.Place, name string,
	newService func(*gormstore.Store, cap.Publisher) (S, error),
) (service S, stop func() error, err error) {
	store, err := place.Open(name)
	if err != nil {
		return service, nil, err
	}
	registry := &subscribe.Registry{}
	bus, err := cap.New(cap.Options{
		Storage: store, Transport: place.Transport, DefaultGroupName: name, Version: place.Version, Registry: registry,
	})
	if err != nil {
		return service, nil, errors.Join(err, store.Close())
	}
	stop = func() error { return errors.Join(bus.Stop(context.WithoutCancel(ctx)), store.Close()) }
	if service, err = newService(store, bus); err != nil {
		return service, nil, errors.Join(err, stop())
	}
	subs, err := subscribe.Tagged(service)
	if err != nil {
		return service, nil, errors.Join(err, stop())
	}
	if err := errors.Join(registry.Add(subs...), bus.Start(ctx)); err != nil {
		return service, nil, errors.Join(err, stop())
	}
	return service, stop, nil
}
