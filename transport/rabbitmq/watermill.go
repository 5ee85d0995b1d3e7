package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/transport"
)

// Publish implements message.Publisher of Watermill: it returns when the broker
// has confirmed all messages, or an error that joins what became of the others
// and names their ids. A message's context ends the wait for all of the call.
func (t *Transport) Publish(topic string, messages ...*message.Message) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(firstContext(messages)))
	defer cancel(nil)
	msgs := make([]*transport.Message, len(messages))
	for i, m := range messages {
		mctx := m.Context()
		defer context.AfterFunc(mctx, func() { cancel(context.Cause(mctx)) })()
		h := make(map[string]string, len(m.Metadata)+2)
		maps.Copy(h, m.Metadata)
		msgs[i] = &transport.Message{ID: m.UUID, Topic: topic, Headers: h, Body: m.Payload}
	}
	var errs []error
	for i, err := range t.Send(ctx, msgs) {
		if err != nil {
			errs = append(errs, fmt.Errorf("message %s: %w", messages[i].UUID, err))
		}
	}
	return errors.Join(errs...)
}

func firstContext(messages []*message.Message) context.Context {
	if len(messages) == 0 {
		return context.Background() //nolint:forbidigo // Watermill's Publish takes no context
	}
	return messages[0].Context()
}
