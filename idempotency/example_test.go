package idempotency_test

import (
	"context"
	"fmt"

	"github.com/capbus/gocap/idempotency"
	"github.com/capbus/gocap/idempotency/memtracker"
)

// A key is taken first, and done when fn has succeeded.
func ExampleTracker() {
	ctx := context.Background()
	var tracker idempotency.Tracker = memtracker.New(memtracker.Config{})
	send := func(order string) error {
		return tracker.Once(ctx, "mail of "+order, func(context.Context) error {
			fmt.Println("mail of", order)
			return nil
		})
	}
	for _, order := range []string{"order 7", "order 8", "order 7"} {
		if err := send(order); err != nil {
			fmt.Println(err)
		}
	}
	done, _ := tracker.HasProcessed(ctx, "mail of order 7")
	fmt.Println("done:", done)
	// Output:
	// mail of order 7
	// mail of order 8
	// done: true
}
