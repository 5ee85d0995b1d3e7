package rabbitmq

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
)

// DefaultURL is where a broker on this machine listens, with the user that every
// broker has.
const DefaultURL = "amqp://localhost:5672/"

// DefaultExchange is that of the .NET library CAP. Buses of another version
// than v1 use it with a dot and the version behind it.
const DefaultExchange = "cap.default.router"

// QueueKind says how the queue of a group is declared.
type QueueKind int

const (
	// Quorum declares a replicated queue; the default.
	Quorum QueueKind = iota
	// Classic declares a classic queue: on one node, and its broker retry loses
	// messages when the broker stops at a bad moment.
	Classic
	// AsIs declares nothing: the queue must be there, with whatever arguments;
	// only bindings are added.
	AsIs
)

// String is the name of the constant, in lower case.
func (k QueueKind) String() string {
	names := []string{"quorum", "classic", "as is"}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("QueueKind(%d)", int(k))
	}
	return names[k]
}

// Config configures a Transport. The zero value talks to DefaultURL as the .NET
// library CAP does.
type Config struct {
	// URL is amqp:// or amqps://, with user, password, host and virtual host.
	// Defaults to AMQP.Connection.AmqpURI, and that to DefaultURL.
	URL string
	// Hosts are more addresses ("host:port") of the same cluster, tried in turn
	// when one does not answer. Defaults to none.
	Hosts []string
	// TLS is for amqps:// addresses. Defaults to AMQP.Connection.TLSConfig.
	TLS *tls.Config

	// Exchange is the name of the topic exchange; buses of another version than
	// v1 use it with a dot and the version behind it. It may be left empty when
	// AMQP.Exchange.GenerateName gives names, to which nothing is added.
	// Defaults to DefaultExchange.
	Exchange string
	// ExchangeAsIs: the exchange must be there, nothing is declared. Defaults to
	// false.
	ExchangeAsIs bool
	// Queue says how queues are declared. Defaults to Quorum.
	Queue QueueKind

	// Channels is the most channels that publish at once. Defaults to 8.
	Channels int
	// Window is the most messages unconfirmed on one channel. Defaults to 500.
	Window int
	// ConfirmTimeout bounds the wait for the confirmations of one window; what
	// is not confirmed by then counts as an attempt. Defaults to 30 s.
	ConfirmTimeout time.Duration
	// DialTimeout bounds one try to connect to one host. Defaults to 5 s.
	DialTimeout time.Duration
	// RefreshInterval is how often a receiver declares its queue and bindings
	// again, in case someone has deleted an exchange or a binding. Defaults to
	// 30 s.
	RefreshInterval time.Duration
	// MaxMessageBytes is the largest body that is sent; the broker's own limit
	// must not be less. Defaults to 16 MiB.
	MaxMessageBytes int
	// Logger gets what a custom TopologyBuilder logs. Defaults to
	// slog.Default().
	Logger *slog.Logger

	// AMQP is the configuration of watermill-amqp. What it sets goes before our
	// defaults; see FromWatermill for what each part means here.
	AMQP wmamqp.Config
}

// FromWatermill returns a Config with what a user of watermill-amqp has. Its
// parts mean:
//
//   - Connection: the address, TLS, the amqp091 settings (SASL, heartbeat, …)
//     and the waits between two tries to connect.
//   - Marshaler: makes a publishing of a message (UUID is the id, metadata the
//     headers) and the other way round. The delivery mode is persistent and the
//     message id set whatever it says; a delivery that it cannot read is read as
//     if there were none.
//   - Exchange, Publish.GenerateRoutingKey, QueueBind: called with the topic.
//   - Queue.GenerateName: called with the name of the group, because a group has
//     one queue for all its topics.
//   - Consume: consumer tag, exclusive, arguments; a prefetch above 1 is an upper
//     bound of the window (1 is what every constructor sets).
//   - TopologyBuilder: declares the exchange and, for each topic of a group,
//     queue and binding; DefaultTopologyBuilder means ours, which does the same.
//
// Publishing is always mandatory and confirmed, on channels as Config.Channels
// says.
func FromWatermill(c wmamqp.Config) Config { return Config{AMQP: c} }

func (c Config) withDefaults() Config {
	a := &c.AMQP
	if c.URL == "" {
		c.URL = or(a.Connection.AmqpURI, DefaultURL)
	}
	a.Connection.AmqpURI = c.URL
	if c.TLS == nil {
		c.TLS = a.Connection.TLSConfig
	}
	a.Connection.TLSConfig = c.TLS
	if a.Exchange.GenerateName == nil && a.Exchange.Type == "" {
		a.Exchange.Type, a.Exchange.Durable = "topic", true
	}
	if a.Queue.GenerateName == nil {
		a.Queue.GenerateName, a.Queue.Durable = wmamqp.GenerateQueueNameTopicName, true
	}
	if a.QueueBind.GenerateRoutingKey == nil {
		a.QueueBind.GenerateRoutingKey = sameName
	}
	if a.Publish.GenerateRoutingKey == nil {
		a.Publish.GenerateRoutingKey = sameName
	}
	if a.TopologyBuilder == nil {
		a.TopologyBuilder = &wmamqp.DefaultTopologyBuilder{}
	}
	if a.Marshaler == nil {
		a.Marshaler = Marshaler{}
	}
	c.Channels = or(c.Channels, or(a.Publish.ChannelPoolSize, 8))
	c.Window = or(c.Window, 500)
	c.ConfirmTimeout = or(c.ConfirmTimeout, 30*time.Second)
	c.DialTimeout = or(c.DialTimeout, 5*time.Second)
	c.RefreshInterval = or(c.RefreshInterval, 30*time.Second)
	c.MaxMessageBytes = or(c.MaxMessageBytes, 16<<20)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func sameName(name string) string { return name }

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// forVersion completes the name of the exchange.
func (c Config) forVersion(version string) Config {
	if c.AMQP.Exchange.GenerateName != nil && c.Exchange == "" {
		return c
	}
	name := or(c.Exchange, DefaultExchange)
	if version != "" && version != "v1" {
		name += "." + version
	}
	c.AMQP.Exchange.GenerateName = wmamqp.GenerateExchangeNameConstant(name)
	return c
}

func (c Config) validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("rabbitmq: "+format, args...))
		}
	}
	_, err := amqp091.ParseURI(c.URL)
	// The error of ParseURI may quote the address, password included.
	bad(err != nil, "URL is not an address such as amqps://user:password@host:5671/vhost; escape reserved characters in user and password")
	for _, h := range c.Hosts {
		_, _, err := net.SplitHostPort(h)
		bad(err != nil || strings.Contains(h, "@"), "Hosts has an entry that is not host:port; user and password stand in URL")
	}
	bad(len(c.Exchange) > transport.MaxTopicBytes-21, "Exchange has %d bytes; at most %d are allowed, so that a version fits behind it", len(c.Exchange), transport.MaxTopicBytes-21)
	bad(c.Queue < Quorum || c.Queue > AsIs, "Queue is %v; it is one of Quorum, Classic, AsIs", c.Queue)
	if f := c.forVersion("").AMQP.Exchange.GenerateName; f("topic") == "" {
		errs = append(errs, errors.New("rabbitmq: AMQP.Exchange.GenerateName gives the default exchange, which knows queues and no topics; name another one"))
	}
	q := c.AMQP.Queue
	bad(c.Queue == Quorum && (!q.Durable || q.AutoDelete || q.Exclusive),
		"a quorum queue is durable, not exclusive and not deleted by itself; set AMQP.Queue so, or Queue to Classic")
	for name, n := range map[string]int{"Channels": c.Channels, "Window": c.Window, "MaxMessageBytes": c.MaxMessageBytes} {
		bad(n < 0, "%s is negative", name)
	}
	for name, d := range map[string]time.Duration{"ConfirmTimeout": c.ConfirmTimeout, "DialTimeout": c.DialTimeout, "RefreshInterval": c.RefreshInterval} {
		bad(d < 0, "%s is negative; every wait has a limit here", name)
	}
	bad(c.AMQP.Publish.Immediate, "AMQP.Publish.Immediate is not supported by RabbitMQ: it would close the connection")
	bad(c.AMQP.Publish.Transactional, "AMQP.Publish.Transactional cannot be had together with confirmations; leave it false")
	bad(c.AMQP.Consume.NoRequeueOnNack, "AMQP.Consume.NoRequeueOnNack would lose messages that are given back; for dead-lettering see transport.BrokerRetry")
	bad(c.AMQP.Consume.NoWait || q.NoWait || c.AMQP.Exchange.NoWait || c.AMQP.QueueBind.NoWait, "NoWait would hide that something could not be declared; leave it false")
	return errors.Join(errs...)
}

// hosts are all addresses, in the order in which they are tried; none if the URL
// is wrong.
func (c Config) hosts() []string {
	u, err := amqp091.ParseURI(c.URL)
	if err != nil {
		return nil
	}
	return append([]string{net.JoinHostPort(u.Host, fmt.Sprint(u.Port))}, c.Hosts...)
}

// destination names hosts, virtual host and exchange.
func (c Config) destination() string {
	u, err := amqp091.ParseURI(c.URL)
	if err != nil {
		return ""
	}
	vhost := u.Vhost
	if raw := c.AMQP.Connection.AmqpConfig; raw != nil && raw.Vhost != "" {
		vhost = raw.Vhost
	}
	hosts := c.hosts()
	slices.Sort(hosts)
	return strings.Join(hosts, ",") + " " + vhost + " " + c.exchangeLabel()
}

// exchangeLabel is the name of the exchange, or that there is one a topic.
func (c Config) exchangeLabel() string {
	if c.exchangePerTopic() {
		return "an exchange a topic"
	}
	return c.AMQP.Exchange.GenerateName("topic")
}

func (c Config) exchangePerTopic() bool {
	f := c.AMQP.Exchange.GenerateName
	return f("a") != f("b")
}

// wildcards reports whether patterns mean here what transport.Match says.
func (c Config) wildcards() bool {
	return c.AMQP.Exchange.Type == "topic" && !c.exchangePerTopic()
}

// LogValue shows the settings without user, password and keys.
func (c Config) LogValue() slog.Value {
	c = c.withDefaults().forVersion("")
	return slog.GroupValue(
		slog.String("destination", c.destination()),
		slog.Bool("tls", strings.HasPrefix(c.URL, "amqps:")),
		slog.String("queue", c.Queue.String()),
		slog.Int("channels", c.Channels),
		slog.Int("window", c.Window),
		slog.Duration("confirm_timeout", c.ConfirmTimeout),
	)
}

// String is as LogValue, so that printing a Config shows no password.
func (c Config) String() string { return c.LogValue().String() }

// GoString is as String.
func (c Config) GoString() string { return "rabbitmq.Config" + c.String() }

// watermillLogger is what a custom TopologyBuilder logs to.
func (c Config) watermillLogger() watermill.LoggerAdapter {
	return watermill.NewSlogLogger(c.Logger)
}
