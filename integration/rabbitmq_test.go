package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/rabbitmq"
)

// rabbit is a transport on the shared broker, with names of its own and a network
// that can be away.
type rabbit struct {
	*rabbitmq.Transport

	url, version, exchange string

	mu    sync.Mutex
	away  bool
	conns []net.Conn
	dials int
	mute  chan struct{} // until it is closed, what the broker says waits; nil: it does not
}

func newRabbit(t *testing.T) *rabbit {
	t.Helper()
	r := rabbitAt(t, rabbitURL())
	t.Cleanup(func() {
		must(t, r.Close())
		r.raw(t, func(ch *amqp091.Channel) {
			for _, group := range []string{"effects", "handled", "retried"} {
				_, err := ch.QueueDelete(r.queue(group), false, false, false)
				must(t, err)
			}
			must(t, ch.ExchangeDelete(r.exchange, false, false))
		})
	})
	return r
}

// rabbitAt is as newRabbit, on a broker whose names nobody has to clear away.
func rabbitAt(t *testing.T, url string) *rabbit {
	t.Helper()
	r := rabbitOf(url, "t"+cap.NewID()[24:])
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

// rabbitOf is the transport of a version, which goes behind the names of exchange
// and queues.
func rabbitOf(url, version string) *rabbit {
	r := &rabbit{url: url, version: version, exchange: "gocap-test." + version}
	r.Transport = rabbitmq.New(rabbitmq.Config{
		URL: url, Exchange: "gocap-test", RefreshInterval: time.Second,
		AMQP: wmamqp.Config{Connection: wmamqp.ConnectionConfig{AmqpConfig: &amqp091.Config{Dial: r.dial}}},
	})
	return r
}

func rabbitURL() string {
	return cmp.Or(os.Getenv("GOCAP_RABBITMQ_URL"), "amqp://guest:guest@127.0.0.1:5672/")
}

func (r *rabbit) queue(group string) string { return group + "." + r.version }

func (r *rabbit) options(o *cap.Options) {
	o.Transport, o.Version = r.Transport, r.version
}

func (r *rabbit) dial(network, addr string) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return nil, errors.New("connection refused")
	}
	c, err := net.DialTimeout(network, addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	r.dials++
	r.conns = append(r.conns, c)
	return &mutable{c, r}, nil
}

// network lets connections be made or not, and cuts those that are there.
func (r *rabbit) network(there bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = !there
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

// raw runs f as an independent client.
func (r *rabbit) raw(t *testing.T, f func(ch *amqp091.Channel)) {
	t.Helper()
	c, err := amqp091.Dial(r.url)
	if err != nil {
		t.Fatalf("RabbitMQ is needed at GOCAP_RABBITMQ_URL: %v", err)
	}
	defer func() { _ = c.Close() }()
	ch, err := c.Channel()
	must(t, err)
	f(ch)
}

// TestRabbitMQ is the whole way: the broker is away at the start, the network is
// cut while messages are under way, and everything is done once.
func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	r.network(false)
	s := start(t, file(t), r.options)
	const n = 40
	place := func(from, to int) {
		for i := from; i < to; i++ {
			must(t, s.place(t.Context(), fmt.Sprint(i), nil))
		}
	}
	place(0, n/4)
	if h := number(t, s.store.DB(), "SELECT count(*) FROM effects"); h != 0 {
		t.Errorf("%d effects without a broker", h)
	}
	r.network(true)
	for i := 1; i < 4; i++ {
		place(n*i/4, n*(i+1)/4)
		r.network(true) // what there was is cut
	}
	// A message may be settled in the outbox, and be with the broker only.
	eventually(t, "all have arrived", func() bool { return number(t, s.store.DB(), "SELECT count(*) FROM cap_received") >= 5*n })
	settled(t, s.store.DB(), 4*window) // as slow as the machine is
	verify(t, s.store.DB())
	if fails := column(t, s.store.DB(), "SELECT last_error FROM cap_published WHERE retries > 0"); len(fails) > 0 {
		t.Errorf("a network that was away counted as an attempt: %v", fails)
	}
}

// TestRabbitMQForeignMessages arrive once: handled where topic and id can be
// known, else stored as failed with their bodies. None goes round and round.
func TestRabbitMQForeignMessages(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	s := start(t, file(t), r.options)
	r.raw(t, func(ch *amqp091.Channel) {
		must(t, ch.Confirm(false))
		put := func(key string, p amqp091.Publishing) {
			dc, err := ch.PublishWithDeferredConfirm(r.exchange, key, true, false, p)
			must(t, err)
			if !dc.Wait() {
				t.Error("not confirmed")
			}
		}
		// .NET CAP, which numbers its messages; without headers; without an id.
		put("order.placed", amqp091.Publishing{MessageId: "42", Body: []byte(`{"ID":"dotnet"}`), Headers: amqp091.Table{
			transport.HeaderID: "42", transport.HeaderTopic: "order.placed", transport.HeaderReplyTo: nil, transport.HeaderCorrelation: int32(0),
		}})
		put("order.placed", amqp091.Publishing{MessageId: "43", Body: []byte(`{"ID":"bare"}`), ContentType: "application/json"})
		put("order.placed", amqp091.Publishing{Body: []byte(`{"ID":"anonymous"}`)})
		// What nobody can handle.
		put("order.\xff", amqp091.Publishing{MessageId: "44", Body: []byte("\xff\x00 body")})
		put("order.placed", amqp091.Publishing{MessageId: "45", Body: []byte("<xml/>"), ContentType: "application/xml"})
		put("order.unknown", amqp091.Publishing{MessageId: "46"})
	})
	eventually(t, "all have come", func() bool { // six to one group or more, and three that were charged
		return number(t, s.store.DB(), "SELECT count(DISTINCT message_id) FROM cap_received") >= 9
	})
	settled(t, s.store.DB(), 4*window)
	got := column(t, s.store.DB(), "SELECT id FROM effects")
	slices.Sort(got)
	if strings.Join(got, " ") != "anonymous bare dotnet" {
		t.Errorf("effects of %v", got)
	}
	if n := number(t, s.store.DB(), "SELECT count(*) FROM cap_received WHERE body = ? AND last_error <> ''", []byte("\xff\x00 body")); n != 1 {
		t.Errorf("the message whose topic is not UTF-8 is stored %d times as failed, with its body", n)
	}
	if n := number(t, s.store.DB(), "SELECT count(*) FROM cap_received WHERE message_id = '45' AND CAST(body AS TEXT) = '<xml/>'"); n < 2 {
		t.Errorf("the message that cannot be decoded is stored %d times with its body", n)
	}
	must(t, s.bus.Stop(context.WithoutCancel(t.Context())))
	r.raw(t, func(ch *amqp091.Channel) {
		for _, group := range []string{"effects", "handled", "retried"} {
			q, err := ch.QueueDeclarePassive(r.queue(group), true, false, false, false, nil)
			must(t, err)
			if q.Messages != 0 || q.Consumers != 0 {
				t.Errorf("queue %s has %d messages and %d consumers after a stop", q.Name, q.Messages, q.Consumers)
			}
		}
	})
}
