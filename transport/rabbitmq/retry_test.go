package rabbitmq_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/rabbitmq"
)

var errHandler = errors.New("no such product")

// retrying starts a group without an inbox, and a second group that must never
// see what is retried.
func retrying(t *testing.T, kind rabbitmq.QueueKind, exchange string, retry transport.BrokerRetry) (tr *tidy, c, other *consumer, group string) {
	t.Helper()
	group = "gocap-test-" + newID()
	tr = open(t, rabbitmq.Config{Queue: kind, Exchange: exchange})
	c = receive(t, tr, transport.Source{Group: group, Topics: []string{"retry.*", "last"}, Retry: &retry})
	other = receive(t, tr, transport.Source{Group: "gocap-test-" + newID(), Topics: []string{"retry.*", "last"}})
	return tr, c, other, group
}

// nextTry returns a delivery of the attempt that is due.
func (c *consumer) nextTry(attempt int) transport.Retrier {
	c.t.Helper()
	d, ok := c.next().(transport.Retrier)
	if !ok {
		c.t.Fatal("a delivery of a source with Retry is no Retrier")
	}
	if d.Attempt() != attempt {
		c.t.Errorf("attempt %d, want %d", d.Attempt(), attempt)
	}
	return d
}

// fail ends an attempt twice: the second answer counts for nothing.
func fail(t *testing.T, d transport.Retrier, wantParked bool) {
	t.Helper()
	if parked, err := d.Fail(t.Context(), errHandler); err != nil || parked != wantParked {
		t.Errorf("fail: parked %t, %v; want %t", parked, err, wantParked)
	}
	if parked, err := d.Fail(t.Context(), errHandler); err != nil || parked {
		t.Errorf("fail again: parked %t, %v", parked, err)
	}
}

func TestBrokerRetry(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]rabbitmq.QueueKind{"quorum": rabbitmq.Quorum, "classic": rabbitmq.Classic} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const pause = 200 * time.Millisecond
			tr, c, other, group := retrying(t, kind, "", transport.BrokerRetry{Attempts: 3, Wait: pause})
			m := message("retry.a", "body")
			m.Headers["k"] = "v"
			stored(t, tr.Send(t.Context(), []*transport.Message{m}))
			other.nextAcked()

			for attempt := 1; attempt <= 3; attempt++ {
				d := c.nextTry(attempt)
				if got := d.Message(); got.ID != m.ID || got.Topic != "retry.a" || string(got.Body) != "body" || got.Headers["k"] != "v" {
					t.Errorf("attempt %d: message is %+v", attempt, got)
				}
				begun := time.Now()
				if attempt == 2 { // a stop is no attempt
					if err := d.Nack(0); err != nil {
						t.Error(err)
					}
					d = c.nextTry(2)
				}
				fail(t, d, attempt == 3)
				if attempt < 3 {
					next := c.nextTry(attempt + 1)
					if took := time.Since(begun); took < pause {
						t.Errorf("attempt %d came after %v, want %v at least", attempt+1, took, pause)
					}
					if err := next.Nack(0); err != nil {
						t.Error(err)
					}
				}
			}
			c.nothing(tr, "last")
			other.nextAcked()

			unpark(t, tr, c, group, m)
			other.nothing(tr, "last")
		})
	}
}

// unpark sends the parked message back, and sees it handled as if it were new.
func unpark(t *testing.T, tr *tidy, c *consumer, group string, m *transport.Message) {
	t.Helper()
	if _, err := tr.Unpark(t.Context(), group, "another"); !errors.Is(err, rabbitmq.ErrNotParked) {
		t.Errorf("unpark of an id that is not there: %v", err)
	}
	p, err := tr.Unpark(t.Context(), group, m.ID)
	if err != nil {
		t.Fatal(err)
	}
	if p.Message.ID != m.ID || p.Message.Topic != m.Topic || p.Attempts != 3 || p.Reason != errHandler.Error() {
		t.Errorf("parked was %+v, %+v", p, p.Message)
	}
	d := c.nextTry(1)
	for k := range d.Message().Headers {
		if strings.HasPrefix(k, "cap-parked-") || k == "x-death" {
			t.Errorf("header %q has come along", k)
		}
	}
	if err := d.Ack(); err != nil {
		t.Error(err)
	}
	if _, err := tr.Unpark(t.Context(), group, ""); !errors.Is(err, rabbitmq.ErrNotParked) {
		t.Errorf("unpark when nothing is parked: %v", err)
	}
}

// TestBrokerRetryOfForeignMessages: the topic is not in a header, and other
// queues have put their marks on the message.
func TestBrokerRetryOfForeignMessages(t *testing.T) {
	t.Parallel()
	exchange := "gocap-test-" + newID()
	_, c, _, group := retrying(t, rabbitmq.Quorum, exchange, transport.BrokerRetry{Attempts: 2, Wait: time.Millisecond})
	r := rawDial(t, brokerURL())
	defer r.close()
	r.put(exchange, "retry.foreign", amqp091.Publishing{MessageId: "7", Body: []byte("x"), Headers: amqp091.Table{
		"x-death": []any{amqp091.Table{"queue": "another", "reason": "rejected", "count": int64(9), "routing-keys": []any{"another.topic"}}},
	}})
	first := c.nextTry(1)
	fail(t, first, false)
	second := c.nextTry(2)
	for _, d := range []transport.Retrier{first, second} {
		if topic := d.Message().Topic; topic != "retry.foreign" {
			t.Errorf("attempt %d: topic is %q", d.Attempt(), topic)
		}
	}
	fail(t, second, true)
	parked := r.get(group + ".dlq")
	if parked.Headers["cap-parked-reason"] != errHandler.Error() || parked.Headers["cap-parked-queue"] != group || parked.Headers["cap-msg-name"] != "retry.foreign" {
		t.Errorf("headers of the parked message: %v", parked.Headers)
	}
}

// TestParkingThatFailsLosesNothing: the message is not acked when it could not be
// parked.
func TestParkingThatFailsLosesNothing(t *testing.T) {
	t.Parallel()
	tr, c, _, group := retrying(t, rabbitmq.Quorum, "", transport.BrokerRetry{Attempts: 1})
	stored(t, tr.Send(t.Context(), []*transport.Message{message("retry.a", "x")}))
	r := rawDial(t, brokerURL())
	defer r.close()
	r.deleteQueue(group + ".dlq")
	d := c.nextTry(1)
	if parked, err := d.Fail(t.Context(), errHandler); parked || !errors.Is(err, transport.ErrUnroutable) {
		t.Errorf("fail without a place to park: %t, %v", parked, err)
	}
	r.on(func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclare(group+".dlq", true, false, false, false, amqp091.Table{"x-queue-type": "quorum"})
		return err
	})
	fail(t, c.nextTry(1), true)
	r.get(group + ".dlq")
}
