package rabbitmq_test

import (
	"context"
	"testing"
	"time"

	wm "github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
)

func message(topic, body string) *transport.Message {
	id := newID()
	return &transport.Message{
		ID: id, Topic: topic, Body: []byte(body),
		Headers: map[string]string{transport.HeaderID: id, transport.HeaderTopic: topic},
	}
}

// consumer is one Receive whose deliveries wait in a channel.
type consumer struct {
	t    *testing.T
	got  chan transport.Delivery
	stop func()
	done chan error
}

// receive starts a receiver of a group; the queue is there when it returns.
func receive(t *testing.T, tr *tidy, src transport.Source) *consumer {
	t.Helper()
	if src.Window == 0 {
		src.Window = 50
	}
	if err := tr.Declare(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := &consumer{t: t, got: make(chan transport.Delivery, 1000), done: make(chan error, 1)}
	go func() {
		c.done <- tr.Receive(ctx, src, func(_ context.Context, batch []transport.Delivery) {
			for _, d := range batch {
				c.got <- d
			}
		})
	}()
	c.stop = func() {
		cancel()
		if err := <-c.done; err != nil {
			t.Errorf("receive: %v", err)
		}
		c.done <- nil
	}
	t.Cleanup(c.stop)
	return c
}

func (c *consumer) next() transport.Delivery {
	c.t.Helper()
	select {
	case d := <-c.got:
		return d
	case <-time.After(wait):
		c.t.Fatal("nothing was delivered")
		return nil
	}
}

// nextAcked returns the next message, acked.
func (c *consumer) nextAcked() *transport.Message {
	c.t.Helper()
	d := c.next()
	if err := d.Ack(); err != nil {
		c.t.Errorf("ack: %v", err)
	}
	return d.Message()
}

// nothing fails the test if anything has come by the time that a last message
// does.
func (c *consumer) nothing(tr *tidy, topic string) {
	c.t.Helper()
	last := message(topic, "last")
	stored(c.t, tr.Send(c.t.Context(), []*transport.Message{last}))
	if m := c.nextAcked(); m.ID != last.ID {
		c.t.Errorf("message %q on topic %q came, too", m.Body, m.Topic)
	}
}

func stored(t *testing.T, errs []error) {
	t.Helper()
	for i, err := range errs {
		if err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
}

// get takes a message from a queue, as an independent client.
func (r *raw) get(queue string) amqp091.Delivery {
	r.tb.Helper()
	var d amqp091.Delivery
	deadline := time.Now().Add(wait)
	for time.Now().Before(deadline) {
		found := false
		r.on(func(ch *amqp091.Channel) (err error) {
			d, found, err = ch.Get(queue, true)
			return err
		})
		if found {
			return d
		}
		pause()
	}
	r.tb.Fatalf("nothing came to queue %q", queue)
	return d
}

// put publishes as an independent client.
func (r *raw) put(exchange, key string, p amqp091.Publishing) {
	r.tb.Helper()
	r.on(func(ch *amqp091.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		dc, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, p)
		if err == nil && !dc.Wait() {
			r.tb.Errorf("independent client: not confirmed")
		}
		return err
	})
}

func watermillMessage(id, payload string) *wm.Message {
	return wm.NewMessage(id, []byte(payload))
}
