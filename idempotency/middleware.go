package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// progressWait is how long a message whose key is in progress waits for its next
// try.
const progressWait = time.Second

// KeyFunc returns the key of a message. An error is that of the attempt.
type KeyFunc func(ctx context.Context, m *transport.Message) (string, error)

// Middleware runs a handler once for each key: where the key is done, the message
// counts as handled without it. Each group and subscriber has keys of its own, so
// they may share a tracker; a subscription that is renamed begins anew. A message
// whose key is in progress is snoozed for a second, which is no attempt. An empty
// key ends the message as failed for good, with ErrNoKey.
//
// The key is done when the handler has returned nil, and the inbox transaction
// commits after that. A handler that writes or publishes in it, or answers
// (subscribe.Reply), needs a tracker whose key is committed with it: gormtracker
// with Config.Tx. With another one a commit that fails takes those writes back,
// and the next attempt finds the key done: they are lost.
//
//	subscribe.With(idempotency.Middleware(tracker, idempotency.MessageID))
func Middleware(t Tracker, key KeyFunc) subscribe.Middleware {
	if t == nil || key == nil {
		return nil // With and Validate report it
	}
	return func(next subscribe.Handler) subscribe.Handler {
		return subscribe.HandlerFunc(func(ctx context.Context, m *transport.Message) error {
			k, err := key(ctx, m)
			if err != nil {
				return err
			}
			if k == "" {
				return subscribe.Reject(fmt.Errorf("idempotency: message %s of topic %s: %w", m.ID, m.Topic, ErrNoKey))
			}
			err = t.Once(ctx, scoped(ctx, k), func(ctx context.Context) error { return next.Handle(ctx, m) })
			if errors.Is(err, ErrInProgress) {
				return fmt.Errorf("%w (%w)", err, subscribe.Snooze(progressWait))
			}
			return err
		})
	}
}

// scoped begins the key with group and subscriber, so that no two of them can
// make the same out of different parts.
func scoped(ctx context.Context, key string) string {
	info, _ := subscribe.InfoFromContext(ctx)
	return fmt.Sprintf("%d:%s%d:%s%s", len(info.Group), info.Group, len(info.Subscriber), info.Subscriber, key)
}

// MessageID is the KeyFunc of repeats of one message: its topic and id. The same
// event that is published again has a new id, and is new to it; see JSONKey.
func MessageID(_ context.Context, m *transport.Message) (string, error) {
	if m.ID == "" {
		return "", nil
	}
	return fmt.Sprintf("%d:%s%s", len(m.Topic), m.Topic, m.ID), nil
}

// JSONKey is the KeyFunc of a business key, such as the number of the order, in a
// body of JSON. It finds the same event again whoever has published it, under
// whatever id. The topic is no part of it. A body that cannot be decoded as T
// ends the message as failed for good.
func JSONKey[T any](key func(body T) string) KeyFunc {
	if key == nil {
		return nil
	}
	return func(_ context.Context, m *transport.Message) (string, error) {
		var body T
		if err := transport.JSON.Decode(m.Body, &body); err != nil {
			return "", subscribe.Reject(fmt.Errorf("idempotency: key of message %s of topic %s: %w", m.ID, m.Topic, err))
		}
		return key(body), nil
	}
}
