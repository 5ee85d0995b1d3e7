// Package wmadapter makes a transport of any Watermill message.Publisher and
// message.Subscriber. Tested with gochannel, watermill-amqp, watermill-sql,
// watermill-nats and watermill-kafka; docs/transports.md says what each of them
// can and cannot do, and what stands in its way.
//
// Where there is a transport of this module for the broker, take that one: the
// two interfaces do not tell whether a message was routed, rejected or lost on the
// way, and most subscribers hand out one message at a time.
//
// # Messages
//
// The UUID is the message id, the metadata are the headers, cap-msg-id and
// cap-msg-name among them, the payload is the body. Of a foreign message without
// these headers the UUID is the id, and the name that was subscribed to the topic.
// An empty message without an id (watermill-amqp makes one when a queue is
// deleted) is acked and dropped.
//
// # Sending
//
// What Publish returned nil for counts as stored. An error does not say what it
// means, so, unless Config.Outcome does: when the broker has taken another message
// since the Send began, the error is the message's own, an unknown outcome that
// counts as an attempt; else it is transport.ErrUnavailable, which costs none. A
// panic, and a Publish that does not return, are unknown outcomes. A message that
// nobody takes is reported as stored.
//
// # Receiving
//
// A group has a subscription for each of its topics. Acks go to the subscriber;
// its Nack is never used, because it means a tight loop with one broker and a
// stopped queue with another: what is given back waits here and is delivered again
// from memory, and goes back to the broker when Receive ends. When a subscriber takes
// a message back by itself, because its time for an ack is over, and gives it again
// to the same receiver, it stays the delivery that it was, and an ack of meanwhile
// counts. So such a time may be short, where others wait for it (watermill-sql).
//
// # Foreign code
//
// Every call into a Publisher or Subscriber has a time to return in. One that does
// not return is left to itself, at most Config.Publishers and 100 others; beyond
// that calls fail at once with an error that says so.
package wmadapter

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/capbus/gocap/transport"
)

// Transport is a Publisher and Subscribers as a transport. All methods may be
// called concurrently. Close it after the bus has stopped.
type Transport struct {
	cfg    Config
	given  Config
	born   time.Time
	slots  chan struct{} // calls of Publish
	strays atomic.Int64  // other calls that have not returned
	stored atomic.Int64  // when Publish last succeeded, in nanoseconds since born
	closed atomic.Bool
}

var _ transport.Transport = (*Transport)(nil)

// New returns a Transport. It does not check the configuration, see Validate, and
// calls nothing.
func New(cfg Config) *Transport {
	full := cfg.withDefaults()
	return &Transport{cfg: full, given: cfg, born: time.Now(), slots: make(chan struct{}, max(full.Publishers, 1))}
}

// Validate returns every problem of the configuration.
func (t *Transport) Validate() error { return t.given.validate() }

// Traits returns what the configuration says. They have no Ordered and no
// SingleActive, whatever the broker can: each topic has a subscription of its own.
func (t *Transport) Traits() transport.Traits { return t.cfg.traits() }

// Check asks Config.Check, within ctx and Config.SubscribeTimeout.
func (t *Transport) Check(ctx context.Context) error {
	if t.closed.Load() {
		return errClosed
	}
	if t.cfg.Check == nil {
		return nil
	}
	if err := t.call(ctx, t.cfg.SubscribeTimeout, "check", func() error { return t.cfg.Check(ctx) }); err != nil {
		return unavailable(err)
	}
	return nil
}

// Close closes the Publisher and waits for that, at most Config.CloseTimeout.
// Receives end with their contexts.
func (t *Transport) Close() error {
	if t.closed.Swap(true) || t.cfg.Publisher == nil {
		return nil
	}
	ctx := context.Background() //nolint:forbidigo // Close takes no context; the time bounds it
	if err := t.call(ctx, t.cfg.CloseTimeout, "close of the publisher", t.cfg.Publisher.Close); err != nil {
		return fmt.Errorf("wmadapter: %w", err)
	}
	return nil
}

// String names technology and destination.
func (t *Transport) String() string { return fmt.Sprintf("%s %s", t.cfg.Name, t.cfg.Destination) }

// GoString is as String, so that printing shows nothing of Publisher.
func (t *Transport) GoString() string { return t.String() }
