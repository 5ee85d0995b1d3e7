package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/operator"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// times is how often each event is delivered.
const times = 10

// lossy is middleware that loses the success of a handler, as a process does that
// dies before it is written down: the handler runs ten times in all.
func lossy(next subscribe.Handler) subscribe.Handler {
	return subscribe.HandlerFunc(func(ctx context.Context, m *cap.Message) error {
		err := next.Handle(ctx, m)
		if info, _ := cap.InfoFromContext(ctx); err == nil && info.Attempt < times {
			return errors.New("the success is lost")
		}
		return err
	})
}

// deliver publishes the event once, brings that message again under its id, and
// publishes the event again under new ids.
func deliver(ctx context.Context, bus *cap.Bus, queue *memqueue.Queue, groups int) error {
	queue.Record(times)
	p := Paid{Order: "order 7", Amount: amount, Balance: opening - amount, Version: 1}
	if err := bus.Publish(ctx, cap.NoTx, "order.paid", p); err != nil {
		return err
	}
	if err := until(ctx, func() (bool, error) { return len(queue.Sent()) > 0, nil }); err != nil {
		return err
	}
	again := slices.Repeat(queue.Sent()[:1], times-1)
	if err := errors.Join(queue.Send(ctx, again)...); err != nil {
		return err
	}
	for range times {
		if err := bus.Publish(ctx, cap.NoTx, "order.paid.again", p); err != nil {
			return err
		}
	}
	return handled(ctx, bus, groups+times)
}

// handled waits until so many messages have been handled.
func handled(ctx context.Context, bus *cap.Bus, n int) error {
	op, err := bus.Operator()
	if err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		counts, err := op.Count(ctx, operator.Received, "")
		for _, c := range counts.States {
			if c.State == operator.Succeeded {
				return c.Rows >= n, err
			}
		}
		return false, err
	})
}

func until(ctx context.Context, f func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if ok, err := f(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not all is handled: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
