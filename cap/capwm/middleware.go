package capwm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

type messageKey struct{}

// errNoContext: without it the handler would run outside of the inbox transaction,
// and no stop would reach it.
var errNoContext = errors.New("capwm: the middleware passed on a message without the context of the one that it got; after Copy, use SetContext")

// Middleware makes Watermill's middleware one of a subscription:
//
//	subscribe.With(capwm.Middleware(middleware.Recoverer))
//
// It sees each message as Watermill's: UUID is the id, metadata the headers,
// payload the body; what it changes of metadata and payload, and the context that
// it sets, are what the handler gets. Its error is a failed attempt, nil is
// success. Some things are worth knowing:
//
//   - Ack and Nack of the message do nothing; InstantAck has no effect.
//   - A copy of the message needs its context (SetContext), which Copy leaves out: it
//     holds the inbox transaction. Without it the attempt fails.
//   - A middleware that returns messages is an error: a subscription has no topic
//     to publish them to. The handler publishes with cap.Publish.
//   - Retry tries again at once, with the message in hand; the bus counts all of it
//     as one attempt. Give it a ShouldRetry that lets errors of subscribe.Reject
//     and the like pass.
//   - One that turns an error into nil (PoisonQueue, IgnoreErrors) ends the message
//     as a success, and commits what the handler had written in the inbox
//     transaction before it failed. PoisonQueue on NewPublisher publishes in the
//     same transaction. The names of topic, handler and subscriber that it notes
//     are empty: Watermill's Router alone can set them.
//   - Deduplicator marks before the handler has run: what failed once counts as
//     done. The inbox makes it unnecessary.
func Middleware(m message.HandlerMiddleware) subscribe.Middleware {
	return func(next subscribe.Handler) subscribe.Handler {
		handle := m(func(wm *message.Message) ([]*message.Message, error) {
			was, ok := wm.Context().Value(messageKey{}).(*transport.Message)
			if !ok {
				return nil, errNoContext
			}
			return nil, next.Handle(wm.Context(), incoming(wm, was.Topic))
		})
		return subscribe.HandlerFunc(func(ctx context.Context, m *transport.Message) error {
			made, err := handle(outgoing(ctx, m))
			if err == nil && len(made) > 0 {
				return fmt.Errorf("capwm: the middleware returned %d messages, which have no topic; publish them in the handler", len(made))
			}
			return err
		})
	}
}

// outgoing makes a Watermill message, which remembers the one that it was made of.
func outgoing(ctx context.Context, m *transport.Message) *message.Message {
	wm := message.NewMessage(m.ID, slices.Clone(m.Body))
	wm.Metadata = make(message.Metadata, len(m.Headers))
	maps.Copy(wm.Metadata, m.Headers)
	wm.SetContext(context.WithValue(ctx, messageKey{}, m))
	return wm
}

// incoming makes a message of what a middleware lets through.
func incoming(wm *message.Message, topic string) *transport.Message {
	m := &transport.Message{
		ID: wm.UUID, Topic: topic,
		Headers: make(map[string]string, len(wm.Metadata)), Body: slices.Clone([]byte(wm.Payload)),
	}
	maps.Copy(m.Headers, wm.Metadata)
	return m
}
