//go:build !capnofx

package idempotency_test

import (
	"context"
	"fmt"
	"log/slog"

	"go.uber.org/fx"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/idempotency"
	"github.com/capbus/gocap/idempotency/memtracker"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

type OrderPaid struct {
	Order string
}

// Mailer is a service whose handlers are fields; its tracker comes from the
// container, which has one on gorm or Redis in production.
type Mailer struct {
	subscribe.Class `cap:"order,group=mailer"`

	Paid subscribe.On[OrderPaid] `cap:"paid"`

	tracker idempotency.Tracker
	handled chan string
}

func NewMailer(tracker idempotency.Tracker) *Mailer {
	m := &Mailer{tracker: tracker, handled: make(chan string)}
	m.Paid = m.paid
	return m
}

func (m *Mailer) paid(ctx context.Context, p OrderPaid) error {
	mail := "no mail again"
	err := m.tracker.Once(ctx, "mail of "+p.Order, func(context.Context) error {
		mail = "mail of " + p.Order
		return nil
	})
	m.handled <- mail
	return err
}

// The same event is published twice, under two ids.
func Example_fx() {
	var publisher cap.Publisher
	var mailer *Mailer
	app := fx.New(
		fx.NopLogger,
		fx.Supply(cap.Options{Registry: &subscribe.Registry{}, Logger: slog.New(slog.DiscardHandler)}),
		fx.Provide(
			func() storage.Storage { return memstore.New(memstore.Config{}) },
			func() transport.Transport { return memqueue.New(memqueue.Config{}) },
			func() idempotency.Tracker { return memtracker.New(memtracker.Config{}) },
			NewMailer, cap.Module,
		),
		cap.Handlers(func(m *Mailer) ([]subscribe.Subscription, error) { return subscribe.Tagged(m) }),
		fx.Populate(&publisher, &mailer),
	)
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		panic(err)
	}
	for range 2 {
		if err := publisher.Publish(ctx, cap.NoTx, "order.paid", OrderPaid{"order 7"}); err != nil {
			panic(err)
		}
		fmt.Println(<-mailer.handled)
	}
	if err := app.Stop(ctx); err != nil {
		panic(err)
	}
	// Output:
	// mail of order 7
	// no mail again
}

// Middleware does the same for a handler that knows nothing of it.
func ExampleMiddleware() {
	tracker := memtracker.New(memtracker.Config{})
	byOrder := idempotency.JSONKey(func(p OrderPaid) string { return p.Order })
	sub := subscribe.To("order.paid", func(_ context.Context, p OrderPaid) error {
		fmt.Println("mail of", p.Order)
		return nil
	}, subscribe.Group("mailer"), subscribe.With(idempotency.Middleware(tracker, byOrder)))
	fmt.Println(sub.Validate())
	// Output: <nil>
}
