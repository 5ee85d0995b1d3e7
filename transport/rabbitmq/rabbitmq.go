// Package rabbitmq moves messages over RabbitMQ, on the wire as the .NET library
// CAP does: a topic exchange, a queue for each group, headers that are strings.
// Tested with RabbitMQ 3.10.
//
// It speaks the vocabulary of watermill-amqp: who has an amqp.Config brings it
// along (FromWatermill), with its names, arguments, Marshaler and
// TopologyBuilder, and a Transport is a message.Publisher too. The connections,
// confirmations and acks are our own, because an outbox must know of each message
// whether the broker has it.
//
// # Publishing
//
// Messages are persistent, mandatory and confirmed, in windows of hundreds on a
// few channels. An answer is one of: confirmed; returned, because no queue takes
// the topic (transport.ErrUnroutable); nacked or refused (transport.ErrRejected);
// not known, because the connection went or the broker blocks publishing
// (transport.ErrUnavailable), or because the confirmation did not come in time.
// While the broker says that it is blocked nothing is sent.
//
// # Topology
//
// Publishing declares the exchange; a group declares its queue and adds bindings.
// Nothing is ever unbound or deleted, see Unbind. Queues are quorum queues unless
// Config.Queue says otherwise. A queue or exchange that is there with other
// settings is an error that names both, not something to work around.
//
// From RabbitMQ 4 on, a quorum queue drops a message that was given back 20
// times: set AMQP.Queue.Arguments "x-delivery-limit" to -1 there, before the
// queues are made.
//
// # Broker retry
//
// A Source with Retry needs no inbox: what fails waits in "<queue>.retry", comes
// back to the queue, and after the last attempt is parked in "<queue>.dlq" with
// the reason; see Unpark. With quorum queues no step loses a message. Classic
// ones may lose one when the broker stops between two queues.
//
// # Connections
//
// There are two: one publishes, one consumes, because the broker stops reading
// from a connection that publishes when it has an alarm. Each is made when it is
// needed and again after it was lost; no goroutine runs while nobody asks. A
// broker that is away is transport.ErrUnavailable, never a failed start.
package rabbitmq

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/transport"
)

// Transport is a connection to RabbitMQ that is made when it is needed. All
// methods may be called concurrently. Close it after the bus has stopped.
type Transport struct {
	cfg    Config
	given  Config
	shared *shared
}

// shared is what the transports of all versions have together.
type shared struct {
	publish *publisher
	consume *link
	queues  sync.Map // queue to its group
}

// own keeps two groups from one queue, where they would take messages from each
// other.
func (s *shared) own(queue, group string) error {
	if other, there := s.queues.LoadOrStore(queue, group); there && other != group {
		return fmt.Errorf("rabbitmq: groups %q and %q would share the queue %q; let AMQP.Queue.GenerateName, which gets the group, tell them apart", group, other, queue)
	}
	return nil
}

var (
	_ transport.Transport = (*Transport)(nil)
	_ transport.Declarer  = (*Transport)(nil)
	_ transport.Versioned = (*Transport)(nil)
	_ transport.Retrier   = (*retried)(nil)
	_ message.Publisher   = (*Transport)(nil)
)

// New returns a Transport for version v1; a bus of another version makes its own
// of it (ForVersion). It does not check the configuration, see Validate, and
// opens nothing.
func New(cfg Config) *Transport {
	full := cfg.withDefaults()
	return &Transport{cfg: full.forVersion(""), given: cfg, shared: &shared{
		publish: newPublisher(full, newLink(full, "publish")),
		consume: newLink(full, "consume"),
	}}
}

// ForVersion returns the Transport whose exchange is that of a version. It shares
// the connections, and is closed with the one it is made from.
func (t *Transport) ForVersion(version string) transport.Transport {
	return &Transport{cfg: t.given.withDefaults().forVersion(version), given: t.given, shared: t.shared}
}

// Validate returns every problem of the configuration.
func (t *Transport) Validate() error { return t.given.validate() }

// Traits returns what the configuration makes possible.
func (t *Transport) Traits() transport.Traits {
	return transport.Traits{
		Name:         "rabbitmq",
		Destination:  t.cfg.destination(),
		Ordered:      true,
		SingleActive: t.cfg.Queue != AsIs, // who knows how that queue was made
		Routing:      true,
		Wildcards:    t.cfg.wildcards(),
		BrokerRetry:  true,
		MaxTopic:     transport.MaxTopicBytes,
		MaxMessage:   t.cfg.MaxMessageBytes,
	}
}

// Check connects if need be and asks the broker for the exchange. It returns an
// error that wraps transport.ErrUnavailable while the broker is away or blocks
// publishing.
func (t *Transport) Check(ctx context.Context) error {
	return t.shared.publish.check(ctx, func(c *conn) error {
		name := ""
		if !t.cfg.exchangePerTopic() {
			name = t.cfg.exchangeLabel()
		}
		return lasting(t.cfg.declareExchange(ctx, c, name))
	})
}

// Send publishes messages and waits for their confirmations, at most
// Config.ConfirmTimeout for each window of Config.Window.
func (t *Transport) Send(ctx context.Context, msgs []*transport.Message) []error {
	errs := make([]error, len(msgs))
	if len(msgs) == 0 {
		return errs
	}
	frameMax := 0
	if c, err := t.shared.publish.link.get(ctx); err == nil {
		frameMax = c.Config.FrameSize
	} else {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	all := make([]*outgoing, len(msgs))
	for i, m := range msgs {
		all[i] = t.cfg.outgoing(m, frameMax)
	}
	t.shared.publish.send(ctx, all, t.cfg.declareExchange)
	for i, o := range all {
		errs[i] = o.err
	}
	return errs
}

// Close ends both connections, within a few seconds even if the broker does not
// answer. Sends and Receives that are under way get transport.ErrUnavailable.
func (t *Transport) Close() error {
	t.shared.publish.link.close()
	t.shared.publish.close()
	t.shared.consume.close()
	return nil
}

// LogValue shows the settings without user, password and keys.
func (t *Transport) LogValue() slog.Value { return t.given.LogValue() }

// String is as LogValue.
func (t *Transport) String() string { return fmt.Sprintf("rabbitmq %s", t.cfg.destination()) }

// GoString is as String.
func (t *Transport) GoString() string { return t.String() }
