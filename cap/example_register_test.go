package cap_test

import (
	"context"
	"fmt"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/subscribe"
)

type ProductPriced struct {
	ID    int `json:"id"`
	Cents int `json:"cents"`
}

// Coupons is a service whose handlers are fields: the tags say what they handle.
type Coupons struct {
	subscribe.Class `cap:"product,group=coupon"`

	Deleted subscribe.On[ProductDeleted] `cap:"deleted,concurrency=4"`
	Priced  subscribe.On[ProductPriced]  `cap:"priced,timeout=5s"`

	done chan string
}

func NewCoupons() *Coupons {
	c := &Coupons{done: make(chan string)}
	c.Deleted, c.Priced = c.remove, c.reprice
	return c
}

func (c *Coupons) remove(_ context.Context, p ProductDeleted) error {
	c.done <- fmt.Sprint("no coupons for product ", p.ID)
	return nil
}

func (c *Coupons) reprice(_ context.Context, p ProductPriced) error {
	c.done <- fmt.Sprintf("coupons of product %d from %d cents", p.ID, p.Cents)
	return nil
}

// Handlers as fields of a struct, with tags; subscribe.Default.Add(subs...)
// instead serves them beside those of Subscribe.
func ExampleSubscribe_attributes() {
	ctx := context.Background()
	coupons := NewCoupons()
	subs, err := subscribe.Tagged(coupons)
	if err != nil {
		panic(err)
	}
	bus := exampleBus(subs...)
	defer func() { _ = bus.Stop(ctx) }()

	publish(bus, "product.priced", ProductPriced{ID: 7, Cents: 990})
	fmt.Println(<-coupons.done)
	publish(bus, "product.deleted", ProductDeleted{ID: 7})
	fmt.Println(<-coupons.done)
	// Output:
	// coupons of product 7 from 990 cents
	// no coupons for product 7
}

// Subscriptions as values: a table of them, for one bus, without a registry.
func ExampleSubscribe_values() {
	ctx := context.Background()
	coupons := NewCoupons()
	bus := exampleBus(
		subscribe.To("product.deleted", coupons.remove, subscribe.Group("coupon"), subscribe.Concurrency(4)),
		subscribe.To("product.priced", coupons.reprice, subscribe.Group("coupon")),
	)
	defer func() { _ = bus.Stop(ctx) }()

	publish(bus, "product.deleted", ProductDeleted{ID: 7})
	fmt.Println(<-coupons.done)
	// Output: no coupons for product 7
}

// * stands for one word, # for none or more.
func ExampleSubscribe_wildcards() {
	ctx := context.Background()
	handled := make(chan string)
	note := func(ctx context.Context, _ *cap.Message) error {
		info, _ := cap.InfoFromContext(ctx)
		handled <- info.Message.Topic + " by " + info.Subscriber
		return nil
	}
	bus := exampleBus(subscribe.To("order.*.paid", note), subscribe.To("stock.#", note))
	defer func() { _ = bus.Stop(ctx) }()

	for _, topic := range []string{"order.eu-west_1.paid", "stock", "stock.low.eu"} {
		publish(bus, topic, "")
		fmt.Println(<-handled)
	}
	// Output:
	// order.eu-west_1.paid by order.*.paid
	// stock by stock.#
	// stock.low.eu by stock.#
}

// Two handlers of one topic in one group have names: each handles the message,
// and if one fails, that one runs again.
func ExampleSubscribe_name() {
	ctx := context.Background()
	handled := make(chan string)
	bus := exampleBus(
		subscribe.To("order.paid", func(ctx context.Context, order int) error {
			info, _ := cap.InfoFromContext(ctx)
			if info.Attempt < 3 {
				return fmt.Errorf("the printer is off")
			}
			handled <- fmt.Sprintf("invoice of order %d, attempt %d", order, info.Attempt)
			return nil
		}, subscribe.Name("invoice")),
		subscribe.To("order.paid", func(ctx context.Context, order int) error {
			info, _ := cap.InfoFromContext(ctx)
			handled <- fmt.Sprintf("points for order %d, attempt %d", order, info.Attempt)
			return nil
		}, subscribe.Name("points")),
	)
	defer func() { _ = bus.Stop(ctx) }()

	publish(bus, "order.paid", 7)
	fmt.Println(<-handled)
	fmt.Println(<-handled)
	// Unordered output:
	// points for order 7, attempt 1
	// invoice of order 7, attempt 3
}

func publish(bus *cap.Bus, topic string, msg any, opts ...cap.PublishOption) {
	if err := bus.Publish(context.Background(), cap.NoTx, topic, msg, opts...); err != nil {
		panic(err)
	}
}
