package cap_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// Subscribe and Publish without a bus at hand: New makes its bus the default one.
func ExampleSubscribe() {
	ctx := context.Background()
	handled := make(chan string, 2)
	for _, group := range []string{"coupon", "files"} { // each group gets its copy
		cap.Subscribe("product.deleted", func(_ context.Context, p ProductDeleted) error {
			handled <- fmt.Sprint("product ", p.ID)
			return nil
		}, subscribe.Group(group))
	}

	bus, err := cap.New(cap.Options{
		Storage:   memstore.New(memstore.Config{}),
		Transport: memqueue.New(memqueue.Config{}),
		Logger:    quietLogger(),
	})
	if err != nil {
		panic(err)
	}
	if err := bus.Start(ctx); err != nil {
		panic(err)
	}
	defer func() { _ = bus.Stop(ctx) }()

	if err := cap.Publish(ctx, cap.NoTx, "product.deleted", ProductDeleted{ID: 7}); err != nil {
		panic(err)
	}
	fmt.Println(<-handled)
	fmt.Println(<-handled)
	// Output:
	// product 7
	// product 7
}

// A handler that fails runs again; Reject says that this would not help.
func ExampleSubscribe_retry() {
	ctx := context.Background()
	done := make(chan struct{})
	bus := exampleBus(subscribe.To("order.placed", func(ctx context.Context, order string) error {
		info, _ := cap.InfoFromContext(ctx)
		fmt.Printf("%s, attempt %d\n", order, info.Attempt)
		switch {
		case order == "nonsense":
			close(done)
			return subscribe.Reject(errors.New("no such order"))
		case info.Attempt < 3:
			return errors.New("the warehouse does not answer")
		}
		return cap.Publish(ctx, cap.NoTx, "order.placed", "nonsense")
	}))
	defer func() { _ = bus.Stop(ctx) }()

	if err := bus.Publish(ctx, cap.NoTx, "order.placed", "order 7"); err != nil {
		panic(err)
	}
	<-done
	// Output:
	// order 7, attempt 1
	// order 7, attempt 2
	// order 7, attempt 3
	// nonsense, attempt 1
}

// In a handler, a nil transaction is that of the inbox: the new message leaves if
// and only if the handler succeeds, and then once.
func ExamplePublish_inHandler() {
	ctx := context.Background()
	handled := make(chan string)
	bus := exampleBus(
		subscribe.To("order.placed", func(ctx context.Context, order int) error {
			info, _ := cap.InfoFromContext(ctx)
			if err := cap.Publish(ctx, nil, "invoice.due", fmt.Sprintf("order %d, of attempt %d", order, info.Attempt)); err != nil {
				return err
			}
			if info.Attempt == 1 {
				return errors.New("the database is full")
			}
			return nil
		}),
		subscribe.To("invoice.due", func(_ context.Context, s string) error {
			handled <- s
			return nil
		}))
	defer func() { _ = bus.Stop(ctx) }()

	if err := bus.Publish(ctx, cap.NoTx, "order.placed", 7); err != nil {
		panic(err)
	}
	fmt.Println(<-handled)
	// Output: order 7, of attempt 2
}

// The callback tells of a message that has failed for good.
func ExampleOptions_failedThresholdCallback() {
	ctx := context.Background()
	failed := make(chan cap.FailedInfo)
	bus, err := cap.New(cap.Options{
		Storage:                 memstore.New(memstore.Config{}),
		Transport:               memqueue.New(memqueue.Config{}),
		Registry:                &subscribe.Registry{},
		Logger:                  quietLogger(),
		FailedRetryCount:        2,
		FailedThresholdCallback: func(_ context.Context, info cap.FailedInfo) { failed <- info },
		Subscriptions: []subscribe.Subscription{subscribe.To("order.placed", func(context.Context, int) error {
			return errors.New("the warehouse has burnt down")
		}, subscribe.Group("warehouse"))},
	})
	if err != nil {
		panic(err)
	}
	if err := bus.Start(ctx); err != nil {
		panic(err)
	}
	defer func() { _ = bus.Stop(ctx) }()

	if err := bus.Publish(ctx, cap.NoTx, "order.placed", 7); err != nil {
		panic(err)
	}
	info := <-failed
	fmt.Printf("%s of %s by %s: %s, after %d attempts\n", info.Kind, info.Message.Topic, info.Group, info.LastError, info.Attempts)
	// Output: subscribe of order.placed by warehouse: the warehouse has burnt down, after 2 attempts
}
