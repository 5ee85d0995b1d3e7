package cap_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// RetryAfter is a failed attempt, and says when the next one comes.
func ExampleSubscribe_retryAfter() {
	ctx := context.Background()
	handled := make(chan string)
	bus := exampleBus(subscribe.To("order.paid", func(ctx context.Context, _ int) error {
		info, _ := cap.InfoFromContext(ctx)
		handled <- fmt.Sprint("attempt ", info.Attempt)
		if info.Attempt == 1 {
			return subscribe.RetryAfter(10*time.Millisecond, errors.New("429 too many requests"))
		}
		return nil
	}))
	defer func() { _ = bus.Stop(ctx) }()

	publish(bus, "order.paid", 7)
	fmt.Println(<-handled)
	fmt.Println(<-handled)
	// Output:
	// attempt 1
	// attempt 2
}

// Snooze puts a message off. It is no attempt.
func ExampleSubscribe_snooze() {
	ctx := context.Background()
	handled := make(chan string)
	open := false
	bus := exampleBus(subscribe.To("order.paid", func(ctx context.Context, _ int) error {
		info, _ := cap.InfoFromContext(ctx)
		handled <- fmt.Sprintf("open: %t, attempt %d", open, info.Attempt)
		if !open {
			open = true
			return subscribe.Snooze(10 * time.Millisecond)
		}
		return nil
	}, subscribe.FailedRetryCount(1)))
	defer func() { _ = bus.Stop(ctx) }()

	publish(bus, "order.paid", 7)
	fmt.Println(<-handled)
	fmt.Println(<-handled)
	// Output:
	// open: false, attempt 1
	// open: true, attempt 1
}

var errNoSuchProduct = errors.New("no such product")

// A policy by kinds of errors, for all handlers: here what is not there is given
// up at once. OnError in subscribe.With is for one subscription.
func ExampleOptions_middleware() {
	ctx := context.Background()
	failed := make(chan cap.FailedInfo)
	giveUp := subscribe.OnError(func(_ context.Context, err error) error {
		if errors.Is(err, errNoSuchProduct) {
			return subscribe.Reject(err)
		}
		return err
	})
	bus, err := cap.New(cap.Options{
		Storage:                 memstore.New(memstore.Config{}),
		Transport:               memqueue.New(memqueue.Config{}),
		Registry:                &subscribe.Registry{},
		Logger:                  quietLogger(),
		Middleware:              []subscribe.Middleware{giveUp},
		FailedThresholdCallback: func(_ context.Context, info cap.FailedInfo) { failed <- info },
		Subscriptions: []subscribe.Subscription{subscribe.To("product.priced", func(_ context.Context, p ProductPriced) error {
			return fmt.Errorf("product %d: %w", p.ID, errNoSuchProduct)
		}, subscribe.Group("coupon"))},
	})
	if err != nil {
		panic(err)
	}
	if err := bus.Start(ctx); err != nil {
		panic(err)
	}
	defer func() { _ = bus.Stop(ctx) }()

	publish(bus, "product.priced", ProductPriced{ID: 7})
	info := <-failed
	fmt.Printf("%s, after %d attempt\n", info.LastError, info.Attempts)
	// Output: product 7: no such product, after 1 attempt
}

// Middleware runs in the order given, and sees message, attempt and error.
func ExampleSubscribe_middleware() {
	ctx := context.Background()
	done := make(chan struct{})
	step := func(name string) subscribe.Middleware {
		return func(next subscribe.Handler) subscribe.Handler {
			return subscribe.HandlerFunc(func(ctx context.Context, m *cap.Message) error {
				info, _ := cap.InfoFromContext(ctx)
				fmt.Printf("%s: %s, attempt %d\n", name, m.Topic, info.Attempt)
				err := next.Handle(ctx, m)
				fmt.Printf("%s: %v\n", name, err)
				return err
			})
		}
	}
	last := func(next subscribe.Handler) subscribe.Handler {
		return subscribe.HandlerFunc(func(ctx context.Context, m *cap.Message) error {
			defer close(done)
			return next.Handle(ctx, m)
		})
	}
	bus := exampleBus(subscribe.To("order.paid", func(context.Context, int) error {
		fmt.Println("handler")
		return nil
	}, subscribe.With(last, step("outer"), step("inner"))))
	defer func() { _ = bus.Stop(ctx) }()

	publish(bus, "order.paid", 7)
	<-done
	// Output:
	// outer: order.paid, attempt 1
	// inner: order.paid, attempt 1
	// handler
	// inner: <nil>
	// outer: <nil>
}

// Bodies that are ready, such as files or protocol buffers, in a bus whose other
// messages are JSON.
func ExampleWithCodec() {
	ctx := context.Background()
	handled := make(chan []byte)
	bus := exampleBus(subscribe.To("image.added", func(_ context.Context, image []byte) error {
		handled <- image
		return nil
	}, subscribe.Codec(transport.Bytes)))
	defer func() { _ = bus.Stop(ctx) }()

	publish(bus, "image.added", []byte("GIF89a\x00\xff"), cap.WithCodec(transport.Bytes))
	fmt.Printf("%q\n", <-handled)
	// Output: "GIF89a\x00\xff"
}
