//go:build !capnofx

package cap_test

import (
	"context"
	"fmt"

	"go.uber.org/fx"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// Files is a service that deletes the files of deleted products.
type Files struct{ deleted chan int }

func (f *Files) ProductDeleted(_ context.Context, p ProductDeleted) error {
	f.deleted <- p.ID
	return nil
}

func ExampleModule() {
	var publisher cap.Publisher
	var files *Files
	app := fx.New(
		fx.NopLogger,
		fx.Supply(cap.Options{DefaultGroupName: "files", Registry: &subscribe.Registry{}, Logger: quietLogger()}),
		fx.Provide(
			func() storage.Storage { return memstore.New(memstore.Config{}) },
			func() transport.Transport { return memqueue.New(memqueue.Config{}) },
			func() *Files { return &Files{deleted: make(chan int)} },
			cap.Module,
		),
		cap.Handlers(func(f *Files) subscribe.Subscription {
			return subscribe.To("product.deleted", f.ProductDeleted)
		}),
		fx.Populate(&publisher, &files),
	)
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		panic(err)
	}
	if err := publisher.Publish(ctx, cap.NoTx, "product.deleted", ProductDeleted{ID: 7}); err != nil {
		panic(err)
	}
	fmt.Println("deleted the files of product", <-files.deleted)
	if err := app.Stop(ctx); err != nil {
		panic(err)
	}
	// Output: deleted the files of product 7
}

// The handlers of a service that are fields of a struct, and its constructor in
// the container.
func ExampleHandlers() {
	var publisher cap.Publisher
	var coupons *Coupons
	app := fx.New(
		fx.NopLogger,
		fx.Supply(cap.Options{Registry: &subscribe.Registry{}, Logger: quietLogger()}),
		fx.Provide(
			func() storage.Storage { return memstore.New(memstore.Config{}) },
			func() transport.Transport { return memqueue.New(memqueue.Config{}) },
			NewCoupons,
			cap.Module,
		),
		cap.Handlers(func(c *Coupons) ([]subscribe.Subscription, error) { return subscribe.Tagged(c) }),
		fx.Populate(&publisher, &coupons),
	)
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		panic(err)
	}
	if err := publisher.Publish(ctx, cap.NoTx, "product.deleted", ProductDeleted{ID: 7}); err != nil {
		panic(err)
	}
	fmt.Println(<-coupons.done)
	if err := app.Stop(ctx); err != nil {
		panic(err)
	}
	// Output: no coupons for product 7
}

// Two buses in one application: each is private to a module, and the world sees
// what it publishes with, by a name.
func ExampleModule_private() {
	module := func(name string, handlers ...any) fx.Option {
		return fx.Module(name,
			fx.Provide(
				func() cap.Options { return cap.Options{DefaultGroupName: name, Registry: &subscribe.Registry{}} },
				func() storage.Storage { return memstore.New(memstore.Config{}) },
				cap.Module,
				fx.Private,
			),
			cap.Handlers(handlers...),
			fx.Provide(fx.Annotate(func(p cap.Publisher) cap.Publisher { return p }, fx.ResultTags(`name:"`+name+`"`))),
		)
	}
	var in struct {
		fx.In
		Orders cap.Publisher `name:"orders"`
	}
	handled := make(chan string)
	app := fx.New(
		fx.NopLogger,
		fx.Provide(quietLogger, func() transport.Transport { return memqueue.New(memqueue.Config{}) }),
		module("orders"),
		module("billing", func() subscribe.Subscription {
			return subscribe.To("order.placed", func(_ context.Context, id string) error {
				handled <- "billing handles " + id
				return nil
			})
		}),
		fx.Populate(&in),
	)
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		panic(err)
	}
	if err := in.Orders.Publish(ctx, cap.NoTx, "order.placed", "order 7"); err != nil {
		panic(err)
	}
	fmt.Println(<-handled)
	if err := app.Stop(ctx); err != nil {
		panic(err)
	}
	// Output: billing handles order 7
}
