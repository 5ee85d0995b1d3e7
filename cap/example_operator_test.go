package cap_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/operator"
	"github.com/capbus/gocap/subscribe"
)

// What has failed for good is found, and handled again once the cause is gone.
func ExampleBus_Operator() {
	ctx := context.Background()
	handled, failed := make(chan string, 1), make(chan string, 1)
	repaired := false
	bus := exampleBus(subscribe.To("invoice.due", func(_ context.Context, no string) error {
		if !repaired {
			failed <- no
			return subscribe.Reject(errors.New("no printer"))
		}
		handled <- no
		return nil
	}))
	defer func() { _ = bus.Stop(ctx) }()
	_ = bus.Publish(ctx, cap.NoTx, "invoice.due", "4711")
	<-failed

	op, err := bus.Operator()
	if err != nil {
		panic(err)
	}
	filter := operator.Filter{Box: operator.Received, States: []operator.State{operator.Failed}}
	var l operator.Listing
	for len(l.Messages) == 0 { // the outcome is stored a moment after the handler has returned
		l, _ = op.List(ctx, filter, operator.Page{Limit: 20})
	}
	for _, m := range l.Messages {
		fmt.Println(m.Topic, m.State, m.LastError)
	}
	repaired = true
	dry, _ := op.RequeueMatching(ctx, filter, operator.Bulk{DryRun: true})
	fmt.Println("would requeue", dry.Done)
	_, _ = op.RequeueMatching(ctx, filter, operator.Bulk{})
	fmt.Println("handled", <-handled)
	// Output:
	// invoice.due failed no printer
	// would requeue 1
	// handled 4711
}

func ExampleBus_Cancel() {
	ctx := context.Background()
	bus := exampleBus()
	defer func() { _ = bus.Stop(ctx) }()

	id := cap.NewID()
	_ = bus.Publish(ctx, cap.NoTx, "reminder.due", "pay", cap.WithID(id), cap.WithDelay(24*time.Hour))
	fmt.Println("cancelled:", bus.Cancel(ctx, id) == nil)
	fmt.Println("again:", errors.Is(bus.Cancel(ctx, id), operator.ErrNotFound))
	// Output:
	// cancelled: true
	// again: true
}
