package integration

import (
	"context"
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// asks sends a message as .NET CAP does, and then gives what comes for an answer
// until it has been enough.
func (r *rabbit) asks(t *testing.T, topic string, headers amqp091.Table, enough func(answers []amqp091.Delivery) bool) {
	t.Helper()
	r.raw(t, func(ch *amqp091.Channel) {
		q, err := ch.QueueDeclare("", false, true, true, false, nil)
		must(t, err)
		must(t, ch.QueueBind(q.Name, "place.order.*", r.exchange, false, nil))
		h := amqp091.Table{
			transport.HeaderID: "1234567890123456789", transport.HeaderTopic: topic, transport.HeaderType: "Object",
			transport.HeaderCorrelationID: "1234567890123456789", transport.HeaderCorrelation: "0", transport.HeaderSentTime: "01/02/2026 03:04:05",
		}
		for key, value := range headers {
			h[key] = value
		}
		must(t, ch.Confirm(false))
		dc, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), r.exchange, topic, true, false, amqp091.Publishing{Headers: h, Body: []byte(`{"ID":"7"}`)})
		must(t, err)
		if !dc.Wait() {
			t.Error("not confirmed")
		}
		var got []amqp091.Delivery
		eventually(t, "the answer has come", func() bool {
			if d, ok, err := ch.Get(q.Name, true); err == nil && ok {
				got = append(got, d)
			}
			return enough(got)
		})
	})
}

// TestACAPPeerGetsItsAnswer: a service on .NET CAP has published with a callback.
func TestACAPPeerGetsItsAnswer(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	begun(t, made(t, opened(t, file(t)), nil, r.options, serving(
		subscribe.Reply("place.order", func(_ context.Context, o order) (order, error) { return order{o.ID + " placed"}, nil }, subscribe.Group("handled")))))
	for to, n := range map[any]int{"place.order.status": 1, nil: 0} {
		r.asks(t, "place.order", amqp091.Table{transport.HeaderReplyTo: to, transport.HeaderID: fmt.Sprint(to)}, func(got []amqp091.Delivery) bool {
			for _, d := range got {
				h := d.Headers
				_, again := h[transport.HeaderReplyTo]
				if string(d.Body) != `{"ID":"7 placed"}` || d.RoutingKey != to || h[transport.HeaderTopic] != to ||
					h[transport.HeaderCorrelationID] != fmt.Sprint(to) || h[transport.HeaderCorrelation] != "1" || h[transport.HeaderType] != "order" || again {
					t.Errorf("answer %s at %s with %v", d.Body, d.RoutingKey, h)
				}
			}
			return len(got) == n
		})
	}
}

// TestAnswersWithoutAnInbox: the delivery comes again as its ack is lost, and the
// answer is in the outbox once all the same.
func TestAnswersWithoutAnInbox(t *testing.T) {
	t.Parallel()
	r := newRetryRabbit(t)
	var runs, failed journal
	store := opened(t, file(t))
	begun(t, made(t, store, nil, r.options, serving(subscribe.Reply("place.order", func(_ context.Context, o order) (order, error) {
		runs.add(o.ID)
		return o, nil
	}, subscribe.Group("third"), subscribe.BrokerRetry(0, 0))), func(o *cap.Options) {
		// Between answer and ack, the first two times, the connection is cut.
		o.HandleTrace = &subscribe.Trace{Handle: func(ctx context.Context, _ subscribe.Info) (context.Context, func(error)) {
			return ctx, func(err error) {
				if err == nil && runs.len() <= 2 {
					r.network(true)
				}
			}
		}}
		o.FailedThresholdCallback = func(_ context.Context, info cap.FailedInfo) { failed.add(info.LastError) }
	}))
	r.asks(t, "place.order", amqp091.Table{transport.HeaderReplyTo: "place.order.status"}, func(got []amqp091.Delivery) bool {
		for _, d := range got {
			if d.MessageId != got[0].MessageId {
				t.Errorf("answers with ids %s and %s", got[0].MessageId, d.MessageId)
			}
		}
		return len(got) > 0 && runs.len() >= 3 && inQueues(t, r) == 0
	})
	settled(t, store.DB(), window)
	if n := number(t, store.DB(), "SELECT count(*) FROM cap_published"); n != 1 || failed.len() != 0 {
		t.Errorf("%d answers, failed for good: %v", n, failed.sorted())
	}
}

// inQueues is how many messages wait for the group without an inbox.
func inQueues(t *testing.T, r *rabbit) (n int) {
	t.Helper()
	r.raw(t, func(ch *amqp091.Channel) {
		for _, end := range []string{"", ".retry", ".dlq"} {
			q, err := ch.QueueDeclarePassive(r.queue("third")+end, true, false, false, false, nil)
			must(t, err)
			n += q.Messages
		}
	})
	return n
}
