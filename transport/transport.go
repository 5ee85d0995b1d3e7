// Package transport is the contract between the engines and a message broker.
//
// An adapter implements [Transport]; what it can do beyond moving messages it
// says in its [Traits]. Everything else here ([Message], [Codec], [Match], the
// header names) is shared vocabulary. The package depends on the standard
// library alone.
package transport

import (
	"context"
	"errors"
	"time"
)

// Errors of [Transport.Send], one a message, wrapped with what the broker said.
var (
	// ErrRejected is an answer: the broker will not take this message (too
	// large, refused by policy, invalid name). It counts as an attempt.
	ErrRejected = errors.New("rejected by the broker")
	// ErrUnroutable is an answer: the broker took part, but no queue takes the
	// topic now. It costs no attempt; the message is sent again later.
	ErrUnroutable = errors.New("no queue takes the topic")
	// ErrUnavailable means that the broker could not be reached, was blocked,
	// or was lost before it answered. The message may or may not be stored. It
	// costs no attempt and opens the engine's circuit breaker.
	ErrUnavailable = errors.New("broker unavailable")
	// ErrBusy means that a queue takes the topic, but its consumers did not take
	// the message in time. It costs no attempt; the message is sent again behind
	// others, and the engine's circuit breaker stays closed.
	ErrBusy = errors.New("consumers are busy")
	// ErrPermanent, joined to ErrRejected, says that the same message would be
	// refused for ever (its size, its name): it ends failed at once.
	ErrPermanent = errors.New("permanent")
)

// Transport moves messages from publishers to groups of consumers. All methods
// may be called concurrently. The engine does not close a transport: who made
// it closes it, after the bus has stopped.
type Transport interface {
	// Send hands messages to the broker and waits for its confirmations. It
	// returns one error a message, in the same order: nil means stored by the
	// broker; see ErrRejected, ErrUnroutable, ErrUnavailable and ErrBusy. Any other
	// error is an unknown outcome, such as a confirmation that did not come in
	// time: the message counts as attempted and is sent again. Send returns
	// when ctx ends, with ErrUnavailable for what is then unanswered, and
	// never waits without a limit. It keeps no reference to msgs.
	Send(ctx context.Context, msgs []*Message) []error

	// Receive declares the source's queue and delivers from it until ctx ends,
	// then returns nil. When the source is lost it returns an error; the engine
	// calls again, with a backoff. Deliver blocks while the workers are full,
	// and gets at most src.Window deliveries at once. A delivery that is
	// neither acked nor nacked when Receive returns is delivered again.
	Receive(ctx context.Context, src Source, deliver func(ctx context.Context, batch []Delivery)) error

	// Check reports whether the broker can be used now; it is the probe of the
	// engine's circuit breaker. It returns an error that wraps ErrUnavailable
	// when a later call may succeed by itself.
	Check(ctx context.Context) error

	// Traits says what the transport can do. It does not change.
	Traits() Traits
}

// Declarer is an optional ability of a transport: to make the queues of groups
// known before their first Receive. Who sends and receives calls it once for
// each of its groups before the first Send, because a message that is sent
// before a group's queue exists can reach other groups, count as stored, and
// miss this one. On a broker that keeps queues this matters once; in process
// it matters at every start.
type Declarer interface {
	// Declare creates the source's queue and bindings and consumes nothing;
	// Window is ignored. It may be repeated. An error that wraps
	// ErrUnavailable may pass by itself: Receive declares too.
	Declare(ctx context.Context, src Source) error
}

// Versioned is an optional ability of a transport whose destination depends on
// the version of the bus, such as an exchange. A bus calls ForVersion once, when
// it is made, and uses what it returns.
type Versioned interface {
	// ForVersion returns the transport for buses of that version. It opens
	// nothing; it shares the connections of the one it is made from, and is
	// closed with it.
	ForVersion(version string) Transport
}

// Delivery is one message in the hands of a consumer.
type Delivery interface {
	// Message is what arrived. It belongs to the receiver.
	Message() *Message
	// Ack says that the message is safely stored here. Ack and Nack may be
	// called more than once, from any goroutine; the first answer counts. An
	// answer after Receive has returned is too late: it may be an error, and
	// the message comes again.
	Ack() error
	// Nack gives the message back, to be delivered again after the wait, to any
	// consumer of the group.
	Nack(after time.Duration) error
}

// Source names what a consumer wants: one queue a group, which takes every
// message whose topic matches one of the patterns.
type Source struct {
	Group  string   // name of the queue: group and version
	Topics []string // patterns, see Match
	Window int      // most deliveries unanswered at once; at least 1
	// Retry is for a group without an inbox: the broker does the retrying. Only
	// for a transport whose Traits say BrokerRetry; nil: there is an inbox.
	Retry *BrokerRetry
	// Ordered lets the queue deliver to one receiver of the group at a time, over
	// all processes, in the order of sending; the next one takes over when it has
	// ended, and first gets what it had not answered. A queue that was asked for so
	// once may stay so. Only where Traits.SingleActive is set.
	Ordered bool
}

// BrokerRetry says how a broker retries what a group without an inbox could not
// handle. Every delivery of such a Source is a [Retrier].
type BrokerRetry struct {
	Attempts int           // in all, before the message is parked; 0: 3
	Wait     time.Duration // between two attempts; 0: a minute
}

// Retrier is a Delivery of a Source with Retry. An Ack says that the message is
// handled, a Nack that the attempt was none (the consumer stops).
type Retrier interface {
	Delivery
	// Attempt is 1 for the first, as the broker counts.
	Attempt() int
	// Fail ends the attempt: the message comes again after the wait, to this
	// group alone, or, after the last attempt, is parked with the reason. It
	// is in one place or the other when Fail returns nil; after an error it is
	// delivered again. It does nothing after another answer.
	Fail(ctx context.Context, reason error) (parked bool, err error)
	// Park is as Fail after the last attempt, whichever it is: the message is
	// not to be tried again.
	Park(ctx context.Context, reason error) error
}

// Traits is what the engines and the docs must know of a transport.
type Traits struct {
	// Name of the technology, for logs and health: "rabbitmq".
	Name string
	// Destination names where messages go (broker and exchange, no
	// credentials). Two instances of one version that differ in it are refused.
	Destination string
	// Ordered: messages sent one after another arrive in that order.
	Ordered bool
	// SingleActive: a Source may be Ordered. Needs Ordered.
	SingleActive bool
	// Routing: Send reports ErrUnroutable.
	Routing bool
	// Wildcards: a Source may have patterns with * and #.
	Wildcards bool
	// BrokerRetry: a Source may have Retry.
	BrokerRetry bool
	// InFlight is the most deliveries of one topic that a group has unanswered at
	// once, if that may be less than its Window; 0: the Window alone bounds them.
	InFlight int
	// HoldsUp: a delivery that is not answered holds up other groups and topics, for
	// a time that the transport bounds.
	HoldsUp bool
	// NoQueue: a group has no queue. Each of its receivers gets a copy of what is
	// sent while it is there, and what it has not answered at its end is lost. Such
	// a transport loses messages; the fields above may be true all the same.
	NoQueue bool
	// MaxTopic and MaxMessage are the broker's limits in bytes; 0: none known.
	MaxTopic, MaxMessage int
}
