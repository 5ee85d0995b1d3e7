package subscribe_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"

	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

type Paid struct{ Order int }

// Billing has a handler as a field.
type Billing struct {
	subscribe.Class `cap:"order,group=billing"`

	Paid subscribe.On[Paid] `cap:"paid,timeout=5s"`
}

// shortly is an error in which places are files alone.
func shortly(err error) string {
	return regexp.MustCompile(`[^ (]*/([a-z_]+\.go):\d+`).ReplaceAllString(err.Error(), "$1")
}

// The constructor assigns the fields; a bus, or a Registry, takes the result.
func ExampleTagged() {
	billing := &Billing{}
	billing.Paid = func(_ context.Context, p Paid) error { return nil }

	subs, err := subscribe.Tagged(billing)
	if err != nil {
		panic(err)
	}
	var registry subscribe.Registry
	fmt.Println(len(subs), registry.Add(subs...))

	_, err = subscribe.Tagged(&Billing{})
	fmt.Println(shortly(err))
	// Output:
	// 1 <nil>
	// subscribe_test.Billing.Paid (example_test.go): it is not assigned: the constructor must set every handler before Tagged
}

// The same group and topic twice is refused, with both places.
func ExampleRegistry_Add() {
	handler := func(context.Context, Paid) error { return nil }
	billing := &Billing{Paid: handler}
	subs, err := subscribe.Tagged(billing)
	if err != nil {
		panic(err)
	}
	var registry subscribe.Registry
	if err := registry.Add(subscribe.To("order.paid", handler, subscribe.Group("billing"))); err != nil {
		panic(err)
	}
	fmt.Println(shortly(registry.Add(subs...)))
	// Output:
	// subscription "order.paid" of group "billing" at subscribe_test.Billing.Paid (example_test.go) is there already: "order.paid" of group "billing" at example_test.go; give one of them another subscribe.Group or subscribe.Name
}

var errSoldOut = errors.New("sold out")

// What a handler returns can be looked into by whoever wraps it.
func ExampleReject() {
	err := subscribe.Reject(fmt.Errorf("order 7: %w", errSoldOut))
	fmt.Println(err, errors.Is(err, errSoldOut))
	// Output: order 7: sold out true
}

// A line for each run, whatever comes of it.
func ExampleLogging() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "took" {
			return slog.Attr{} // they differ from run to run
		}
		return a
	}}))
	handler := subscribe.Logging(log, slog.LevelInfo)(subscribe.HandlerFunc(func(context.Context, *transport.Message) error {
		return errSoldOut
	}))
	_ = handler.Handle(context.Background(), &transport.Message{ID: "1", Topic: "order.paid"})
	// Output:
	// level=INFO msg="handler has run" topic=order.paid group="" subscriber="" msg_id=1 attempt=0 err="sold out"
}
