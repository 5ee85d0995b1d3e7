package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/rabbitmq"
)

// look is how often our side is looked at, so how late its end may be noticed.
const look = 5 * time.Millisecond

// relayOurs ends when the queue has all, and then the table says so.
func relayOurs(ctx context.Context, e *env) error {
	return e.withBus(ctx, nil, func() (bool, error) {
		n, err := e.queued()
		if err != nil || n < e.o.rows {
			return false, err
		}
		left, err := e.unsettled(ctx, "published")
		return !left, err
	})
}

// consumeOurs ends when all are handled, and then the table says so.
func consumeOurs(ctx context.Context, e *env) error {
	var handled atomic.Int64
	sub := subscribe.To(topic, func(context.Context, json.RawMessage) error {
		handled.Add(1)
		return nil
	}, subscribe.Group(group))
	return e.withBus(ctx, []subscribe.Subscription{sub}, func() (bool, error) {
		if handled.Load() < int64(e.o.rows) {
			return false, nil
		}
		left, err := e.unsettled(ctx, "received")
		return !left, err
	})
}

// withBus runs a bus with default Options until done says so.
func (e *env) withBus(ctx context.Context, subs []subscribe.Subscription, done func() (bool, error)) (err error) {
	mq := rabbitmq.New(e.config())
	defer func() { err = errors.Join(err, mq.Close()) }()
	bus, err := cap.New(cap.Options{
		Storage: e.store, Transport: mq, Registry: &subscribe.Registry{}, Subscriptions: subs, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	if err := bus.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bus.Stop(context.WithoutCancel(ctx))) }()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if is, err := done(); err != nil {
			return err
		} else if is {
			e.finished()
			return nil
		}
	}
}
