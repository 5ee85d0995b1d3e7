package capwm

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/internal/wire"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// HeaderUUID carries the UUID of a Watermill message whose id had to be another
// one. Watermill's own adapters use the same name.
const HeaderUUID = "_watermill_message_uuid"

// Option is a setting of a Publisher.
type Option func(*publisher)

// NoTx lets the Publisher publish in a transaction of the storage's own where the
// message's context carries none. Without it that is cap.ErrNoTx, so that
// atomicity is never lost by accident.
func NoTx() Option { return func(p *publisher) { p.noTx = true } }

// NewPublisher returns the bus as a publisher of Watermill. Publish writes each
// message into the outbox, in the transaction that its context carries
// (cap.ContextWithTx, or the inbox transaction of the handler that runs with it);
// it leaves after the commit. It may be called concurrently. Of several messages
// the first ones may be written when it returns an error: roll back.
//
// The payload is the body, byte for byte; no codec sees it. Metadata are the
// headers. The UUID is the message id, so the same UUID twice is cap.ErrDuplicate;
// without one the message gets an id. Two kinds of messages get an id that is made
// of UUID and topic, the same one each time, and keep the UUID in HeaderUUID: those
// whose UUID is no UUID (a ULID, say), and those that came from a bus and are
// passed on, because the id of the message that came is taken; a handler's group
// and subscription go into the latter, so that each can pass on the same message.
// Metadata with names of headers that the bus sets (cap-msg-id and the like) are
// left out; cap-key is the key of cap.WithKey, cap-callback-name the topic of
// cap.WithReplyTo.
//
// Errors are those of Bus.Publish. Close does nothing: the bus is stopped by who
// made it.
func NewPublisher(bus *cap.Bus, opts ...Option) message.Publisher {
	p := &publisher{bus: bus}
	for _, opt := range opts {
		opt(p)
	}
	return p
}

type publisher struct {
	bus  *cap.Bus
	noTx bool
}

func (p *publisher) Close() error { return nil }

func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	for _, wm := range messages {
		if wm == nil {
			return errors.New("capwm: publish " + topic + ": a message is nil")
		}
		if err := p.publish(wm.Context(), topic, wm); err != nil {
			return err
		}
	}
	return nil
}

func (p *publisher) publish(ctx context.Context, topic string, wm *message.Message) error {
	body := wire.Raw{Body: slices.Clone([]byte(wm.Payload)), Type: wm.Metadata[transport.HeaderType]}
	if body.Body == nil {
		body.Body = []byte{}
	}
	opts := options(ctx, topic, wm)
	err := p.bus.Publish(ctx, nil, topic, body, opts...)
	if p.noTx && errors.Is(err, cap.ErrNoTx) {
		return p.bus.Publish(ctx, cap.NoTx, topic, body, opts...)
	}
	return err
}

func options(ctx context.Context, topic string, wm *message.Message) []cap.PublishOption {
	var opts []cap.PublishOption
	for k, v := range wm.Metadata {
		switch k {
		case transport.HeaderID, transport.HeaderTopic, transport.HeaderType, transport.HeaderSentTime, transport.HeaderGroup, HeaderUUID:
		case transport.HeaderKey:
			if v != "" {
				opts = append(opts, cap.WithKey(v))
			}
		case transport.HeaderReplyTo:
			if v != "" {
				opts = append(opts, cap.WithReplyTo(v))
			}
		default:
			opts = append(opts, cap.WithHeader(k, v))
		}
	}
	if wm.UUID == "" {
		return opts
	}
	from := []string{topic, wm.UUID}
	if wm.Metadata[transport.HeaderID] != "" {
		if info, ok := cap.InfoFromContext(ctx); ok {
			from = append(from, info.Group, info.Subscriber)
		}
	} else if _, err := storage.ParseID(wm.UUID); err == nil {
		return append(opts, cap.WithID(wm.UUID))
	}
	return append(opts, cap.WithID(derived(from)), cap.WithHeader(HeaderUUID, wm.UUID))
}

// derived is a UUID of version 8, which is for ids of one's own making.
func derived(from []string) string {
	sum := sha256.Sum256([]byte(strings.Join(from, "\x00")))
	id := storage.ID(sum[:16])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}
