package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
)

// Names beside the queue of a group whose Source has Retry. Nobody consumes
// from either.
func retryQueue(queue string) string  { return queue + ".retry" }
func parkedQueue(queue string) string { return queue + ".dlq" }

func retryDefaults(r transport.BrokerRetry) transport.BrokerRetry {
	r.Attempts = or(r.Attempts, 3)
	r.Wait = or(r.Wait, time.Minute)
	return r
}

func checkRetry(queue string, r *transport.BrokerRetry) error {
	switch {
	case r == nil:
		return nil
	case r.Attempts < 0 || r.Wait < 0:
		return errors.New("broker retry with a negative number of attempts or wait")
	case len(retryQueue(queue)) > transport.MaxTopicBytes:
		return fmt.Errorf("queue name %q has %d bytes; with broker retry at most %d are allowed", queue, len(queue), transport.MaxTopicBytes-len(retryQueue("")))
	}
	return nil
}

// atLeastOnce has a quorum queue keep a dead letter until the next queue has it.
func (c Config) atLeastOnce(args amqp091.Table) {
	if c.Queue == Quorum {
		args["x-dead-letter-strategy"] = "at-least-once"
		args["x-overflow"] = "reject-publish"
	}
}

// declareRetry makes the queue where failed messages wait, which gives them
// back to the group's queue alone, and the one where they are parked.
func (c Config) declareRetry(ch *amqp091.Channel, queue string, r transport.BrokerRetry) error {
	r = retryDefaults(r)
	wait := c.kindArguments()
	wait["x-message-ttl"] = retryTTL(r.Wait)
	wait["x-dead-letter-exchange"] = ""
	wait["x-dead-letter-routing-key"] = queue
	c.atLeastOnce(wait)
	if err := c.queueOn(ch, retryQueue(queue), wait); err != nil {
		return err
	}
	return c.queueOn(ch, parkedQueue(queue), c.kindArguments())
}

// retried is a delivery of a Source with Retry.
type retried struct {
	*delivery

	t       *Transport
	retry   transport.BrokerRetry
	raw     amqp091.Delivery
	queue   string
	attempt int
}

func (d *retried) Attempt() int { return d.attempt }

// Fail gives the message to the retry queue, or parks it.
func (d *retried) Fail(ctx context.Context, reason error) (bool, error) {
	if d.attempt < d.retry.Attempts {
		return false, d.answer(rejected, 0)
	}
	return d.parkOnce(ctx, reason)
}

// Park parks the message.
func (d *retried) Park(ctx context.Context, reason error) error {
	_, err := d.parkOnce(ctx, reason)
	return err
}

// parkOnce parks the message before it is acked, so that it is in two places
// rather than in none. It reports whether it did.
func (d *retried) parkOnce(ctx context.Context, reason error) (bool, error) {
	if first, err := d.hand.reserve(d.tag); !first {
		return false, err
	}
	if err := d.t.park(ctx, d.queue, d.msg, d.raw, d.attempt, reason); err != nil {
		// It stays with us for a while, so that a broker that is full is not
		// asked again at once.
		return false, errors.Join(err, d.hand.resolve(d.tag, nacked, time.Second))
	}
	return true, d.hand.resolve(d.tag, acked, 0)
}

// park puts a message into the queue that nobody consumes.
func (t *Transport) park(ctx context.Context, queue string, m *transport.Message, raw amqp091.Delivery, attempt int, reason error) error {
	h := withoutDeaths(raw.Headers)
	if m.Topic != "" {
		h[transport.HeaderTopic] = m.Topic // its routing key is that of a queue
	}
	h[headerParkReason] = reasonText(reason)
	h[headerParkQueue] = queue
	h[headerParkAttempt] = int64(attempt)
	return t.sendTo(ctx, parkedQueue(queue), publishing(raw, h))
}

// sendTo sends straight to a queue, mandatory and confirmed.
func (t *Transport) sendTo(ctx context.Context, queue string, pub amqp091.Publishing) error {
	o := &outgoing{key: queue, pub: pub}
	t.shared.publish.send(ctx, []*outgoing{o}, t.cfg.declareExchange)
	return o.err
}

// publishing is a delivery to be sent on, with other headers.
func publishing(d amqp091.Delivery, h amqp091.Table) amqp091.Publishing {
	return amqp091.Publishing{
		Headers: h, Body: d.Body, DeliveryMode: amqp091.Persistent, MessageId: d.MessageId,
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, Priority: d.Priority, CorrelationId: d.CorrelationId,
		ReplyTo: d.ReplyTo, Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId,
		// Not the user id, which would have to be ours, nor the expiration.
	}
}

// maxReason bounds what a message carries of the error.
const maxReason = 4096

func reasonText(err error) string {
	if err == nil {
		return ""
	}
	s := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(s) <= maxReason {
		return s
	}
	s = s[:maxReason]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}
