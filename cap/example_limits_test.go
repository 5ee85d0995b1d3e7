package cap_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/subscribe"
)

// At most two runs of this handler are under way at once on an instance.
func ExampleSubscribe_concurrency() {
	ctx := context.Background()
	begun, end := make(chan int), make(chan struct{})
	bus := exampleBus(subscribe.To("image.added", func(_ context.Context, id int) error {
		begun <- id
		<-end
		return nil
	}, subscribe.Concurrency(2)))
	defer func() { _ = bus.Stop(ctx) }()

	for id := range 3 {
		publish(bus, "image.added", id)
	}
	<-begun
	<-begun
	select {
	case <-begun:
		fmt.Println("three run")
	case <-time.After(50 * time.Millisecond):
		fmt.Println("two run")
	}
	end <- struct{}{}
	<-begun
	fmt.Println("the third has begun")
	close(end)
	// Output:
	// two run
	// the third has begun
}

// The context of a run ends when its time is up; the attempt has failed.
func ExampleSubscribe_timeout() {
	ctx := context.Background()
	handled := make(chan string)
	bus := exampleBus(subscribe.To("order.paid", func(ctx context.Context, _ int) error {
		info, _ := cap.InfoFromContext(ctx)
		if info.Attempt == 1 {
			<-ctx.Done() // a call that hangs
			handled <- context.Cause(ctx).Error()
			return ctx.Err()
		}
		handled <- fmt.Sprintf("attempt %d", info.Attempt)
		return nil
	}, subscribe.Timeout(20*time.Millisecond)))
	defer func() { _ = bus.Stop(ctx) }()

	publish(bus, "order.paid", 7)
	fmt.Println(<-handled)
	fmt.Println(<-handled)
	// Output:
	// handler took longer than 20ms: context deadline exceeded
	// attempt 2
}

// unlucky is a handler that fails; it says whether an attempt came at least a
// wait after the one before.
func unlucky(attempts chan<- string, wait time.Duration) func(context.Context, int) error {
	last := time.Now()
	return func(ctx context.Context, _ int) error {
		info, _ := cap.InfoFromContext(ctx)
		how := "at once"
		if time.Since(last) >= wait {
			how = "after a wait"
		}
		last = time.Now()
		attempts <- fmt.Sprintf("attempt %d %s", info.Attempt, how)
		return errors.New("the warehouse does not answer")
	}
}

// Three attempts follow one another at once, the later ones after an interval.
func ExampleSubscribe_failedRetryInterval() {
	ctx := context.Background()
	attempts := make(chan string)
	bus := exampleBus(subscribe.To("order.paid", unlucky(attempts, 300*time.Millisecond),
		subscribe.FailedRetryCount(5), subscribe.FailedRetryInterval(300*time.Millisecond)))
	defer func() { _ = bus.Stop(ctx) }()

	publish(bus, "order.paid", 7)
	for range 5 {
		fmt.Println(<-attempts)
	}
	select {
	case <-attempts:
		fmt.Println("again")
	case <-time.After(400 * time.Millisecond):
		fmt.Println("no more")
	}
	// Output:
	// attempt 1 at once
	// attempt 2 at once
	// attempt 3 at once
	// attempt 4 after a wait
	// attempt 5 after a wait
	// no more
}

// RetryBackoff decides about every wait, the first ones too.
func ExampleSubscribe_retryBackoff() {
	ctx := context.Background()
	attempts := make(chan string)
	bus := exampleBus(subscribe.To("order.paid", unlucky(attempts, 50*time.Millisecond), subscribe.RetryBackoff(func(attempt int) time.Duration {
		return time.Duration(attempt) * 50 * time.Millisecond
	})))
	defer func() { _ = bus.Stop(ctx) }()

	publish(bus, "order.paid", 7)
	<-attempts
	for range 2 {
		fmt.Println(<-attempts)
	}
	// Output:
	// attempt 2 after a wait
	// attempt 3 after a wait
}

// Messages with one key are handled in the order of their commits, through
// retries.
func ExampleWithKey() {
	ctx := context.Background()
	handled := make(chan string)
	bus := exampleBus(subscribe.To("account.changed", func(ctx context.Context, change string) error {
		info, _ := cap.InfoFromContext(ctx)
		if change == "opened" && info.Attempt < 3 {
			return errors.New("the ledger is locked")
		}
		handled <- change
		return nil
	}, subscribe.Ordered()))
	defer func() { _ = bus.Stop(ctx) }()

	for _, change := range []string{"opened", "filled", "closed"} {
		publish(bus, "account.changed", change, cap.WithKey("account-7"))
	}
	for range 3 {
		fmt.Println(<-handled)
	}
	// Output:
	// opened
	// filled
	// closed
}
