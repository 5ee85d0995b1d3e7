package subscribe

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// Reply is as To, of a handler that answers: what fn returns goes to the topic
// that the message names (cap.WithReplyTo; header cap-callback-name), with the id
// of the message as cap-corr-id, and one more than its cap-corr-seq. A message
// that names none is handled all the same, and its answer dropped.
//
// There is one answer for each message that was handled, and none for an attempt
// that failed. A nil answer is one, too: its body is what the codec makes of it,
// null in JSON. AnswerFromContext is for handlers that answer elsewhere, or not at
// all. Middleware that succeeds without the handler has no answer.
//
// The answer is written into the outbox in the inbox transaction, which begins
// for it if the handler has not asked for it, so it leaves if and only if the
// message ends as succeeded, and then once. An answer that cannot be written, as
// its encoding fails, is a failed attempt. A group without an inbox (BrokerRetry)
// writes it before the delivery is acked; a repeated one has the same id, which
// is not written twice, and which an inbox at the other end drops.
//
// A topic that cannot be one, or that Options.AllowedReplyTopics leaves out, ends
// the message as by Reject, before fn is called.
func Reply[T, R any](topic string, fn func(context.Context, T) (R, error), opts ...Option) Subscription {
	var handle func(context.Context, T) error
	if fn != nil {
		handle = func(ctx context.Context, v T) error {
			a, ok := AnswerFromContext(ctx)
			if !ok {
				return errors.New("no answer can be given: a middleware or hook has put another context in place of the handler's")
			}
			if err := a.check(); err != nil {
				return err
			}
			a.given = false
			r, err := fn(ctx, v)
			if err == nil {
				a.value, a.given = r, true
			}
			return err
		}
	}
	s := To(topic, handle, opts...)
	s.replies = true
	return s
}

// Answer says where the answer to a message goes, and with what. Handlers made
// with Reply, and their middleware, may change it until they return; it is not
// safe for concurrent use.
type Answer struct {
	// Topic is where the answer goes: as the message says, without
	// Options.TopicNamePrefix. Empty: there will be none. What middleware and
	// handlers write here may be any topic.
	Topic string
	// ReplyTo is where the answer to this answer is to go, as cap.WithReplyTo.
	// Empty: it asks for none.
	ReplyTo string
	// Headers are added to the answer; what cap.WithHeader refuses fails the
	// attempt. The map is not changed.
	Headers map[string]string

	asked   string // the Topic that the message named
	refused error  // why the answer cannot go there
	carried map[string]string
	id      string
	value   any
	given   bool
}

type answerKey struct{}

// AnswerFromContext returns the Answer of the handler that runs with ctx; false
// if it was not made with Reply.
func AnswerFromContext(ctx context.Context) (*Answer, bool) {
	a, ok := ctx.Value(answerKey{}).(*Answer)
	return a, ok
}

// Outgoing is an answer that is to be published.
type Outgoing struct {
	Topic, ReplyTo string
	Headers        map[string]string
	Value          any
	// ID is empty where there is an inbox transaction. Else the message has this
	// id, and a transaction of its own; one that is there already is no error.
	ID string
}

// check refuses what a message asks for, unless a middleware has seen to it.
func (a *Answer) check() error {
	if a.refused == nil || a.Topic != a.asked {
		return nil
	}
	return Reject(a.refused)
}

// answering gives a handler's context its Answer.
func (rt *route) answering(ctx context.Context, r *rows.Row, m *transport.Message) context.Context {
	if !rt.replies {
		return ctx
	}
	a := &Answer{Topic: m.Headers[transport.HeaderReplyTo], carried: carried(m)}
	a.asked = a.Topic
	a.refused = rt.group.c.checkReply(a.Topic)
	if _, direct := r.Note.(*direct); direct {
		a.id = answerID(r.Record)
	}
	return context.WithValue(ctx, answerKey{}, a)
}

// carried is what an answer has of its message. Nothing else is taken over, least
// of all the topic of the answer: no message can make answers go in circles.
func carried(m *transport.Message) map[string]string {
	seq, err := strconv.Atoi(m.Headers[transport.HeaderCorrelation])
	if err != nil || seq < 0 || seq >= math.MaxInt32 {
		seq = 0
	}
	h := map[string]string{
		transport.HeaderCorrelationID: storage.CleanError(m.ID),
		transport.HeaderCorrelation:   strconv.Itoa(seq + 1),
	}
	for _, name := range []string{"traceparent", "tracestate"} {
		if v := m.Headers[name]; v != "" && v == storage.CleanError(v) {
			h[name] = v
		}
	}
	return h
}

// checkReply returns why an answer cannot go to a topic that a message names.
func (c *Consumer) checkReply(topic string) error {
	if topic == "" {
		return nil
	}
	if err := transport.CheckTopic(join(c.cfg.TopicPrefix, topic)); err != nil {
		return fmt.Errorf("the message wants its answer where none can go: %w", err)
	}
	for _, pattern := range c.cfg.AllowedReplies {
		if transport.Match(pattern, topic) {
			return nil
		}
	}
	return fmt.Errorf("the message wants its answer at %q, which Options.AllowedReplyTopics does not allow; "+
		"add the topic if it should, and requeue the message", topic)
}

// answerID is the same for every run of a message by a subscription.
func answerID(rec *storage.Record) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{rec.Version, rec.Group, rec.Subscriber, rec.Topic, rec.MessageID}, "\x00")))
	id := storage.ID(sum[:16])
	id[6] = id[6]&0x0f | 0x80 // UUID version 8: of one's own making
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// answer publishes what the handler has answered.
func (rt *route) answer(ctx context.Context) error {
	a, ok := AnswerFromContext(ctx)
	if !ok || !a.given || a.Topic == "" {
		return nil
	}
	headers := make(map[string]string, len(a.Headers)+len(a.carried))
	maps.Copy(headers, a.Headers)
	maps.Copy(headers, a.carried)
	out := Outgoing{Topic: a.Topic, ReplyTo: a.ReplyTo, Headers: headers, Value: a.value, ID: a.id}
	if err := rt.group.c.cfg.Reply(ctx, out); err != nil {
		return fmt.Errorf("answer to %s: %w", a.Topic, err)
	}
	return nil
}
