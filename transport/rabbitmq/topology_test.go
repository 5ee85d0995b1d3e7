package rabbitmq_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	wmmessage "github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/rabbitmq"
)

// TestExistingWithOtherSettings: the error names the object and both values, and
// says that waiting does not help.
func TestExistingWithOtherSettings(t *testing.T) {
	t.Parallel()
	exchange, group := "gocap-test-"+newID(), "gocap-test-"+newID()
	src := transport.Source{Group: group, Topics: []string{"a"}}
	classic := open(t, rabbitmq.Config{Exchange: exchange, Queue: rabbitmq.Classic})
	if err := classic.Declare(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	quorum := open(t, rabbitmq.Config{Exchange: exchange})
	err := quorum.Declare(t.Context(), src)
	for _, want := range []string{group, "x-queue-type", "'quorum'", "current is none", "AsIs"} {
		if err == nil || errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("queue of another type: %v, want %q in it", err, want)
		}
	}
	fanout := open(t, rabbitmq.Config{Exchange: exchange, AMQP: wmamqp.Config{Exchange: wmamqp.ExchangeConfig{
		GenerateName: wmamqp.GenerateExchangeNameConstant(exchange), Type: "fanout", Durable: true,
	}}})
	for name, err := range map[string]error{"declare": fanout.Declare(t.Context(), transport.Source{Group: "gocap-test-" + newID(), Topics: []string{"a"}}), "check": fanout.Check(t.Context())} {
		for _, want := range []string{exchange, "fanout", "topic", "ExchangeAsIs"} {
			if err == nil || errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with an exchange of another type: %v, want %q in it", name, err, want)
			}
		}
	}
	// What is sent meanwhile is kept, and goes out when this is put right.
	if err := fanout.Send(t.Context(), []*transport.Message{message("a", "")})[0]; !errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("send to an exchange of another type: %v, want ErrUnavailable", err)
	}
}

func TestAsIs(t *testing.T) {
	t.Parallel()
	exchange, group := "gocap-test-"+newID(), "gocap-test-"+newID()
	tr := open(t, rabbitmq.Config{Exchange: exchange, Queue: rabbitmq.AsIs, ExchangeAsIs: true})
	src := transport.Source{Group: group, Topics: []string{"a"}}
	if err := tr.Declare(t.Context(), src); err == nil || errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), group) {
		t.Errorf("a queue that is not there: %v", err)
	}
	r := rawDial(t, brokerURL())
	defer r.close()
	r.on(func(ch *amqp091.Channel) error {
		if err := ch.ExchangeDeclare(exchange, "topic", false, true, false, false, nil); err != nil {
			return err
		}
		_, err := ch.QueueDeclare(group, true, false, false, false, amqp091.Table{"x-message-ttl": int32(864000000)}) // as .NET CAP does
		return err
	})
	c := receive(t, tr, src)
	stored(t, tr.Send(t.Context(), []*transport.Message{message("a", "x")}))
	c.nextAcked()
}

// TestBindingsAreOnlyAdded by a start, and taken away by Unbind.
func TestBindingsAreOnlyAdded(t *testing.T) {
	t.Parallel()
	group := "gocap-test-" + newID()
	tr := open(t, rabbitmq.Config{})
	c := receive(t, tr, transport.Source{Group: group, Topics: []string{"a", "b", "last"}})
	if err := tr.Declare(t.Context(), transport.Source{Group: group, Topics: []string{"b"}}); err != nil {
		t.Fatal(err)
	}
	stored(t, tr.Send(t.Context(), []*transport.Message{message("a", "x")}))
	c.nextAcked()
	if err := tr.Unbind(t.Context(), group, "a", "never bound"); err != nil {
		t.Fatal(err)
	}
	if err := tr.Send(t.Context(), []*transport.Message{message("a", "x")})[0]; !errors.Is(err, transport.ErrUnroutable) {
		t.Errorf("sent after Unbind: %v, want ErrUnroutable", err)
	}
	c.nothing(tr, "last")
}

func TestGroupsDoNotShareAQueue(t *testing.T) {
	t.Parallel()
	queue := "gocap-test-" + newID()
	tr := open(t, rabbitmq.Config{AMQP: wmamqp.Config{Queue: wmamqp.QueueConfig{GenerateName: wmamqp.GenerateQueueNameConstant(queue), Durable: true}}})
	if err := tr.Declare(t.Context(), transport.Source{Group: queue, Topics: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if err := tr.Transport.Declare(t.Context(), transport.Source{Group: "other", Topics: []string{"a"}}); err == nil || !strings.Contains(err.Error(), queue) {
		t.Errorf("two groups on one queue: %v", err)
	}
}

// builder is a TopologyBuilder of a user's own.
type builder struct {
	wmamqp.DefaultTopologyBuilder

	built chan wmamqp.BuildTopologyParams
}

func (b *builder) BuildTopology(ch *amqp091.Channel, p wmamqp.BuildTopologyParams, c wmamqp.Config, l watermill.LoggerAdapter) error {
	b.built <- p
	return b.DefaultTopologyBuilder.BuildTopology(ch, p, c, l)
}

// TestWatermillConfig: what users of watermill-amqp bring works, and what they
// send with its Marshaler arrives.
func TestWatermillConfig(t *testing.T) {
	t.Parallel()
	exchange, group := "gocap-test-"+newID(), "gocap-test-"+newID()
	b := &builder{built: make(chan wmamqp.BuildTopologyParams, 10)}
	whole := wmamqp.NewDurableTopicConfig(brokerURL(), exchange, "")
	whole.Queue.GenerateName = wmamqp.GenerateQueueNameTopicNameWithSuffix("x")
	whole.TopologyBuilder = b
	cfg := rabbitmq.FromWatermill(whole)
	cfg.Exchange = "" // its own GenerateName is used
	tr := &tidy{Transport: rabbitmq.New(cfg)}
	if err := tr.Validate(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = tr.Close()
		r := rawDial(t, brokerURL())
		defer r.close()
		r.deleteQueue(group + "_x")
		r.deleteExchange(exchange)
	})
	c := receive(t, tr, transport.Source{Group: group, Topics: []string{"a.*"}})
	if p := <-b.built; p.Topic != "a.*" || p.QueueName != group+"_x" || p.ExchangeName != exchange || p.RoutingKey != "a.*" {
		t.Errorf("topology built with %+v", p)
	}
	msg := watermillMessage(newID(), "payload")
	msg.Metadata["k"] = "v"
	if err := tr.Publish("a.b", msg); err != nil {
		t.Fatal(err)
	}
	if m := c.nextAcked(); m.ID != msg.UUID || m.Topic != "a.b" || string(m.Body) != "payload" || m.Headers["k"] != "v" {
		t.Errorf("message is %+v", m)
	}
	if err := tr.Publish("nobody", msg); !errors.Is(err, transport.ErrUnroutable) || !strings.Contains(err.Error(), msg.UUID) {
		t.Errorf("publish to a topic that nobody takes: %v", err)
	}
	// A foreign message that its Marshaler cannot read (a header that is no
	// string) arrives all the same.
	r := rawDial(t, brokerURL())
	defer r.close()
	r.put(exchange, "a.c", amqp091.Publishing{MessageId: "7", Headers: amqp091.Table{"n": int32(1)}})
	if m := c.nextAcked(); m.ID != "7" || m.Topic != "a.c" || m.Headers["n"] != "1" {
		t.Errorf("message is %+v", m)
	}
}

// TestExchangePerTopic is the shape of NewDurablePubSubConfig: fanout exchanges
// named after the topic, no routing keys.
func TestExchangePerTopic(t *testing.T) {
	t.Parallel()
	topic := "gocap-test-" + newID()
	tr := &tidy{Transport: rabbitmq.New(rabbitmq.FromWatermill(wmamqp.NewDurablePubSubConfig(brokerURL(), nil)))}
	if tr.Traits().Wildcards {
		t.Error("fanout exchanges claim wildcards")
	}
	group := "gocap-test-" + newID()
	t.Cleanup(func() {
		_ = tr.Close()
		r := rawDial(t, brokerURL())
		defer r.close()
		r.deleteQueue(group)
		r.deleteExchange(topic)
	})
	c := receive(t, tr, transport.Source{Group: group, Topics: []string{topic}})
	stored(t, tr.Send(t.Context(), []*transport.Message{message(topic, "x")}))
	c.nextAcked()
	r := rawDial(t, brokerURL())
	defer r.close()
	r.put(topic, "", amqp091.Publishing{MessageId: "7"})
	if m := c.nextAcked(); m.Topic != topic {
		t.Errorf("topic is %q, want that of the exchange", m.Topic)
	}
}

// wild panics wherever it is called.
type wild struct{ rabbitmq.Marshaler }

func (wild) Unmarshal(amqp091.Delivery) (*wmmessage.Message, error) { panic("wild") }

func (wild) ExchangeDeclare(*amqp091.Channel, string, wmamqp.Config) error { panic("wild") }

func (wild) BuildTopology(*amqp091.Channel, wmamqp.BuildTopologyParams, wmamqp.Config, watermill.LoggerAdapter) error {
	panic("wild")
}

// TestPanicsOfTheUsersCode lose nothing and leave nothing behind.
func TestPanicsOfTheUsersCode(t *testing.T) {
	t.Parallel()
	src := transport.Source{Group: "gocap-test-" + newID(), Topics: []string{"a"}, Window: 5}
	tr := open(t, rabbitmq.Config{AMQP: wmamqp.Config{Marshaler: wild{}}})
	if err := tr.Declare(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	m := message("a", "x")
	stored(t, tr.Send(t.Context(), []*transport.Message{m}))
	func() {
		defer func() { _ = recover() }()
		_ = tr.Receive(t.Context(), src, func(context.Context, []transport.Delivery) { panic("in deliver") })
		t.Error("the panic of deliver was swallowed")
	}()
	if got := receive(t, tr, src).nextAcked(); got.ID != m.ID || got.Topic != "a" {
		t.Errorf("message is %+v", got)
	}
	built := open(t, rabbitmq.Config{AMQP: wmamqp.Config{TopologyBuilder: wild{}}})
	if err := built.Declare(t.Context(), src); err == nil || !strings.Contains(err.Error(), "wild") {
		t.Errorf("declare with a TopologyBuilder that panics: %v", err)
	}
	if err := built.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "wild") {
		t.Errorf("check with a TopologyBuilder that panics: %v", err)
	}
}
