package wmadapter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/transport"
)

// Config says what a Transport works with, and what only who has chosen the
// Publisher and the Subscriber can know of them.
type Config struct {
	// Publisher sends. Close of the Transport closes it. Nil: nothing can be sent.
	Publisher message.Publisher
	// Subscriber returns a subscriber for a group, whose name is unique for
	// service and version (Source.Group): the name of a Kafka consumer group, part
	// of the name of a queue. It is called for each Receive, which closes what it
	// returned when it ends; see Shared and PerTopic. Nil: nothing can be received.
	Subscriber func(group string) (message.Subscriber, error)

	// Name is that of the technology, for logs and health. Defaults to
	// "watermill".
	Name string
	// Destination names where messages go: a broker, a database, without
	// credentials. Instances of one version that differ in it are refused.
	// Defaults to Name.
	Destination string
	// TopicName makes the name that Publish and Subscribe get of one of our topics,
	// a different one for each; the topic itself travels as header cap-msg-name.
	// See Names. Defaults to the topic.
	TopicName func(topic string) string

	// Wildcards: Subscribe understands patterns as transport.Match does, TopicName
	// leaves them whole, and a message that matches several topics of a group
	// comes once, as with one queue a group. Defaults to false: patterns are
	// refused.
	Wildcards bool
	// NoQueue: see transport.Traits. gochannel is such a one. Defaults to false.
	NoQueue bool
	// HoldsUp: see transport.Traits. watermill-sql is such a one: give it an
	// AckDeadline of a second. Defaults to false.
	HoldsUp bool
	// Subscriptions is how often each topic is subscribed to by one Receive. Most
	// subscribers hand out one message at a time, so this many are in hand; more
	// than 1 only where subscriptions of one group compete. Defaults to 1.
	Subscriptions int
	// InFlight: a subscription hands out a message before the last one is
	// answered. Defaults to false.
	InFlight bool
	// MaxTopic and MaxMessage are the limits in bytes: of topics before TopicName,
	// and of bodies. Default to none.
	MaxTopic, MaxMessage int

	// Outcome says what an error of Publish means: it returns it with one of
	// ErrRejected, ErrUnroutable, ErrUnavailable or ErrBusy of package transport
	// wrapped in, or as it is, an unknown outcome. Defaults to a guess, see the
	// package comment.
	Outcome func(err error) error
	// Routing: Outcome finds out that nobody takes a topic (ErrUnroutable).
	// Defaults to false.
	Routing bool
	// Check asks the broker whether it can be used now. Defaults to one that does
	// not know and says yes.
	Check func(ctx context.Context) error

	// Publishers is the most calls of Publish at once. A call that does not return
	// keeps its place. Defaults to 8.
	Publishers int
	// BatchSize is the most messages of one call of Publish. Defaults to 100.
	BatchSize int
	// SendTimeout bounds a Send; what is not published by then counts as an
	// attempt. Defaults to 30 s.
	SendTimeout time.Duration
	// SubscribeTimeout bounds each call of Subscriber and Subscribe. Defaults to
	// 30 s.
	SubscribeTimeout time.Duration
	// CloseTimeout bounds each of the three waits at the end of a Receive (for the
	// last acks, for Close, for the channels to close), and Close. All three should
	// fit into StopTimeout of the bus. Defaults to 5 s.
	CloseTimeout time.Duration
}

func (c Config) withDefaults() Config {
	c.Name = or(c.Name, "watermill")
	c.Destination = or(c.Destination, c.Name)
	c.Subscriptions = or(c.Subscriptions, 1)
	c.Publishers = or(c.Publishers, 8)
	c.BatchSize = or(c.BatchSize, 100)
	c.SendTimeout = or(c.SendTimeout, 30*time.Second)
	c.SubscribeTimeout = or(c.SubscribeTimeout, 30*time.Second)
	c.CloseTimeout = or(c.CloseTimeout, 5*time.Second)
	if c.TopicName == nil {
		c.TopicName = func(topic string) string { return topic }
	}
	return c
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func (c Config) validate() error {
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("wmadapter: "+format, args...))
		}
	}
	bad(c.Publisher == nil && c.Subscriber == nil, "neither Publisher nor Subscriber is set; a bus that sends needs the first, one that receives the second")
	bad(c.Routing && c.Outcome == nil, "Routing needs an Outcome that returns transport.ErrUnroutable")
	for name, n := range map[string]int{
		"Subscriptions": c.Subscriptions, "MaxTopic": c.MaxTopic, "MaxMessage": c.MaxMessage,
		"Publishers": c.Publishers, "BatchSize": c.BatchSize,
	} {
		bad(n < 0, "%s is negative", name)
	}
	for name, d := range map[string]time.Duration{"SendTimeout": c.SendTimeout, "SubscribeTimeout": c.SubscribeTimeout, "CloseTimeout": c.CloseTimeout} {
		bad(d < 0, "%s is negative; every wait has a limit here", name)
	}
	return errors.Join(errs...)
}

// traits returns what the configuration makes possible. A topic has its own
// subscription, so topics do not keep the order among each other: Ordered and
// SingleActive cannot be promised.
func (c Config) traits() transport.Traits {
	t := transport.Traits{
		Name: c.Name, Destination: c.Destination,
		Routing: c.Routing, Wildcards: c.Wildcards, NoQueue: c.NoQueue, HoldsUp: c.HoldsUp,
		MaxTopic: c.MaxTopic, MaxMessage: c.MaxMessage,
	}
	if !c.InFlight {
		t.InFlight = c.Subscriptions
	}
	return t
}
