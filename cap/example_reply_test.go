package cap_test

import (
	"context"
	"fmt"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

type Price struct{ Cents int }

// A handler answers where its message says. The answer and the success of the
// message are one.
func ExampleWithReplyTo() {
	ctx := context.Background()
	answered := make(chan string)
	bus := exampleBus(
		subscribe.Reply("price.wanted", func(_ context.Context, product string) (Price, error) {
			return Price{Cents: 100 * len(product)}, nil
		}),
		subscribe.To("price.told", func(ctx context.Context, p Price) error {
			info, _ := cap.InfoFromContext(ctx)
			h := info.Message.Headers
			answered <- fmt.Sprintf("%d cents, in answer to %s (%s)", p.Cents, h["cap-corr-id"], h["cap-corr-seq"])
			return nil
		}))
	defer func() { _ = bus.Stop(ctx) }()

	const id = "01890a5d-ac96-774b-bcce-b302099a8057" // cap.NewID() makes one
	if err := bus.Publish(ctx, cap.NoTx, "price.wanted", "lamp", cap.WithID(id), cap.WithReplyTo("price.told")); err != nil {
		panic(err)
	}
	fmt.Println(<-answered)
	// Output: 400 cents, in answer to 01890a5d-ac96-774b-bcce-b302099a8057 (1)
}

// A handler may send its answer elsewhere, send none, or ask for an answer in its
// turn.
func ExampleWithReplyTo_answer() {
	ctx := context.Background()
	told := make(chan string)
	tell := func(ctx context.Context, what string) error {
		info, _ := cap.InfoFromContext(ctx)
		told <- fmt.Sprintf("%s: %s (%s)", info.Message.Topic, what, info.Message.Headers["cap-corr-seq"])
		return nil
	}
	bus := exampleBus(
		subscribe.Reply("order.placed", func(ctx context.Context, what string) (string, error) {
			answer, _ := subscribe.AnswerFromContext(ctx)
			switch what {
			case "a sofa":
				answer.Topic = "haulier.asked" // instead of order.answered
			case "a bribe":
				answer.Topic = "" // no answer at all
			default:
				answer.ReplyTo = "warehouse.thanked"
			}
			return what, nil
		}),
		subscribe.Reply("order.answered", func(_ context.Context, what string) (string, error) {
			return "thanks for " + what, nil
		}),
		subscribe.To("haulier.*", tell), subscribe.To("warehouse.*", tell))
	defer func() { _ = bus.Stop(ctx) }()

	for _, what := range []string{"a bribe", "a sofa", "a lamp"} {
		if err := bus.Publish(ctx, cap.NoTx, "order.placed", what, cap.WithReplyTo("order.answered")); err != nil {
			panic(err)
		}
		if what != "a bribe" {
			fmt.Println(<-told)
		}
	}
	// Output:
	// haulier.asked: a sofa (1)
	// warehouse.thanked: thanks for a lamp (2)
}

// A message that wants its answer where none may go fails before it is handled.
func ExampleOptions_allowedReplyTopics() {
	ctx := context.Background()
	failed := make(chan cap.FailedInfo)
	bus, err := cap.New(cap.Options{
		Storage:   memstore.New(memstore.Config{}),
		Transport: memqueue.New(memqueue.Config{}),
		Registry:  &subscribe.Registry{},
		Logger:    quietLogger(),
		Subscriptions: []subscribe.Subscription{subscribe.Reply("price.wanted", func(context.Context, string) (Price, error) {
			fmt.Println("handled")
			return Price{}, nil
		}, subscribe.Group("prices"))},
		AllowedReplyTopics:      []string{"price.told", "partner.*.price"},
		FailedThresholdCallback: func(_ context.Context, info cap.FailedInfo) { failed <- info },
	})
	if err != nil {
		panic(err)
	}
	if err := bus.Start(ctx); err != nil {
		panic(err)
	}
	defer func() { _ = bus.Stop(ctx) }()

	if err := bus.Publish(ctx, cap.NoTx, "price.wanted", "lamp", cap.WithReplyTo("account.credited")); err != nil {
		panic(err)
	}
	fmt.Println((<-failed).LastError)
	// Output:
	// the message wants its answer at "account.credited", which Options.AllowedReplyTopics does not allow; add the topic if it should, and requeue the message
}
