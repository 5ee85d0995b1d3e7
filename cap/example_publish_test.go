package cap_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

type ProductDeleted struct {
	ID int `json:"id"`
}

// exampleBus is a running bus on the memory adapters, with subscriptions of its
// own. A service has sqlite.Open and the like instead.
func exampleBus(subs ...subscribe.Subscription) *cap.Bus {
	bus, err := cap.New(cap.Options{
		Storage:          memstore.New(memstore.Config{}),
		Transport:        memqueue.New(memqueue.Config{}),
		Registry:         &subscribe.Registry{},
		Subscriptions:    subs,
		DefaultGroupName: "files",
		Logger:           quietLogger(),
	})
	if err != nil {
		panic(err)
	}
	if err := bus.Start(context.Background()); err != nil {
		panic(err)
	}
	return bus
}

// A message is part of the transaction: what is rolled back never leaves.
func ExampleBus_Publish() {
	ctx := context.Background()
	handled := make(chan ProductDeleted)
	bus := exampleBus(subscribe.To("product.deleted", func(_ context.Context, p ProductDeleted) error {
		handled <- p
		return nil
	}))
	defer func() { _ = bus.Stop(ctx) }()

	err := bus.InTx(ctx, func(ctx context.Context, tx cap.Tx) error {
		if err := bus.Publish(ctx, tx, "product.deleted", ProductDeleted{ID: 1}); err != nil {
			return err
		}
		return errors.New("product 1 is in use")
	})
	fmt.Println("rolled back:", err)

	err = bus.InTx(ctx, func(ctx context.Context, tx cap.Tx) error {
		return bus.Publish(ctx, tx, "product.deleted", ProductDeleted{ID: 2})
	})
	fmt.Println("committed:", err)
	fmt.Println("handled:", <-handled)
	// Output:
	// rolled back: product 1 is in use
	// committed: <nil>
	// handled: {2}
}

// Without a transaction the message is committed when Publish returns.
func ExampleBus_Publish_noTx() {
	ctx := context.Background()
	handled := make(chan string)
	bus := exampleBus(subscribe.To("greeting", func(_ context.Context, s string) error {
		handled <- s
		return nil
	}))
	defer func() { _ = bus.Stop(ctx) }()

	if err := bus.Publish(ctx, nil, "greeting", "forgot the transaction"); err != nil {
		fmt.Println(err)
	}
	if err := bus.Publish(ctx, cap.NoTx, "greeting", "hello"); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-handled)
	// Output:
	// cap: publish greeting: no transaction: the transaction is nil, and the context carries none; give the transaction, or cap.NoTx to publish without one
	// hello
}

func ExampleWithDelay() {
	ctx := context.Background()
	handled := make(chan string)
	bus := exampleBus(subscribe.To("reminder", func(_ context.Context, s string) error {
		handled <- s
		return nil
	}))
	defer func() { _ = bus.Stop(ctx) }()

	begun := time.Now()
	if err := bus.Publish(ctx, cap.NoTx, "reminder", "your cart", cap.WithDelay(50*time.Millisecond)); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-handled, time.Since(begun) >= 50*time.Millisecond)
	// Output: your cart true
}

// The same id twice is one message. The transaction stays usable.
func ExampleWithID() {
	ctx := context.Background()
	bus := exampleBus()
	defer func() { _ = bus.Stop(ctx) }()

	id := cap.NewID()
	for range 2 {
		err := bus.Publish(ctx, cap.NoTx, "order.placed", 7, cap.WithID(id))
		fmt.Println("known already:", errors.Is(err, cap.ErrDuplicate))
	}
	// Output:
	// known already: false
	// known already: true
}

// For gives Publish the type of the transaction, so that the compiler checks it;
// a service on database/sql says For[*sql.Tx](bus).
func ExampleFor() {
	ctx := context.Background()
	handled := make(chan string)
	bus := exampleBus(subscribe.To("t", func(_ context.Context, s string) error {
		handled <- s
		return nil
	}))
	defer func() { _ = bus.Stop(ctx) }()

	publisher := cap.For[*memstore.Tx](bus)
	err := bus.InTx(ctx, func(ctx context.Context, tx cap.Tx) error {
		return publisher.Publish(ctx, tx.(*memstore.Tx), "t", "checked")
	})
	fmt.Println(<-handled, err)
	// Output: checked <nil>
}
