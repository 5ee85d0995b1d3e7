package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
)

// Parked is a message that a group without an inbox could not handle.
type Parked struct {
	Message  *transport.Message
	Attempts int
	Reason   string
}

// ErrNotParked is the answer when no message of that id is parked.
var ErrNotParked = errors.New("no message of that id is parked")

// Unpark sends a parked message back to the queue of its group, with attempts as
// if it were new; an empty id takes the oldest. The group is the full name, with
// version ("coupon.v1"). It looks through the parked messages one by one. Errors:
// ErrNotParked; transport.ErrUnavailable, after which the message is parked still,
// or has gone back and is parked too.
func (t *Transport) Unpark(ctx context.Context, group, id string) (*Parked, error) {
	co, err := t.shared.consume.get(ctx)
	if err != nil {
		return nil, err
	}
	var ch *amqp091.Channel
	err = co.do(ctx, func() (err error) {
		ch, err = co.Channel()
		return err
	}, func() {
		if ch != nil {
			_ = ch.Close()
		}
	})
	if err != nil {
		return nil, unavailable(err)
	}
	// What was looked at and left goes back when the channel is closed.
	defer func() { _ = co.do(context.WithoutCancel(ctx), ch.Close, nil) }()
	for ctx.Err() == nil {
		p, err := t.unparkNext(ctx, co, ch, t.cfg.queueName(group), id)
		if p != nil || err != nil {
			return p, err
		}
	}
	return nil, unavailable(context.Cause(ctx))
}

// unparkNext looks at one message; nil: it is another one.
func (t *Transport) unparkNext(ctx context.Context, co *conn, ch *amqp091.Channel, queue, id string) (*Parked, error) {
	var d amqp091.Delivery
	var ok bool
	err := co.do(ctx, func() (err error) {
		d, ok, err = ch.Get(parkedQueue(queue), false)
		return err
	}, nil)
	if err != nil {
		return nil, lasting(errQueue(parkedQueue(queue), err))
	}
	if !ok {
		return nil, fmt.Errorf("rabbitmq: queue %q, id %q: %w", parkedQueue(queue), id, ErrNotParked)
	}
	m := t.cfg.incoming(queue, d)
	if id != "" && m.ID != id {
		return nil, nil
	}
	if err := t.sendTo(ctx, queue, publishing(d, withoutDeaths(d.Headers))); err != nil {
		return nil, err
	}
	attempts, _ := d.Headers[headerParkAttempt].(int64)
	p := &Parked{Message: m, Attempts: int(attempts), Reason: text(d.Headers[headerParkReason])}
	if err := co.do(ctx, func() error { return d.Ack(false) }, nil); err != nil {
		return nil, unavailable(err)
	}
	return p, nil
}
