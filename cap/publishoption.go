package cap

import (
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// PublishOption is a setting of one message.
type PublishOption func(*publishOptions)

type publishOptions struct {
	id      storage.ID
	given   bool
	headers map[string]string
	delay   time.Duration
	dueAt   time.Time
	key     string
	codec   transport.Codec // nil: the bus's
	errs    []error
}

func (o *publishOptions) fail(format string, args ...any) {
	o.errs = append(o.errs, fmt.Errorf(format, args...))
}

// NewID returns a new message id: a UUID of version 7.
func NewID() string { return storage.ID(ids.New()).String() }

// WithID gives the message an id, a UUID. The same id twice is ErrDuplicate, as
// long as the first row is in the table.
func WithID(id string) PublishOption {
	return func(o *publishOptions) {
		parsed, err := storage.ParseID(id)
		if err != nil {
			o.fail("WithID %q: %w; cap.NewID makes one", id, err)
			return
		}
		o.id, o.given = parsed, true
	}
}

// reserved reports whether Publish sets a header itself, and what to use instead;
// "": nothing.
func reserved(key string) (instead string, ok bool) {
	switch key {
	case transport.HeaderID:
		return "WithID", true
	case transport.HeaderTopic:
		return "the topic argument", true
	case transport.HeaderKey:
		return "WithKey", true
	case transport.HeaderReplyTo:
		return "WithReplyTo", true
	case transport.HeaderType, transport.HeaderSentTime, transport.HeaderGroup:
		return "", true
	}
	return "", false
}

// WithHeader adds a header. The names that the framework sets itself (cap-msg-id
// and the like) are refused.
func WithHeader(key, value string) PublishOption {
	return func(o *publishOptions) {
		if instead, ok := reserved(key); ok {
			if instead != "" {
				instead = "; use " + instead
			}
			o.fail("WithHeader: %s is set by the framework%s", key, instead)
			return
		}
		if err := checkHeader(key, value); err != nil {
			o.fail("WithHeader: %w", err)
			return
		}
		o.set(key, value)
	}
}

// WithReplyTo asks for an answer to a topic: a subscription made with
// subscribe.Reply sends one there when it has handled the message, each such
// subscription its own. It has the message's id as header cap-corr-id. The topic
// travels as header cap-callback-name, as it is given: who answers puts its own
// Options.TopicNamePrefix before it.
func WithReplyTo(topic string) PublishOption {
	return func(o *publishOptions) {
		if err := transport.CheckTopic(topic); err != nil {
			o.fail("WithReplyTo: %w", err)
			return
		}
		o.set(transport.HeaderReplyTo, topic)
	}
}

func (o *publishOptions) set(key, value string) {
	if o.headers == nil {
		o.headers = map[string]string{}
	}
	o.headers[key] = value
}

// WithDelay lets the message leave d after it was published, by the database's
// clock. 0 is at once.
func WithDelay(d time.Duration) PublishOption {
	return func(o *publishOptions) {
		if d < 0 {
			o.fail("WithDelay: %s is negative", d)
			return
		}
		o.delay = d
	}
}

// WithDueAt lets the message leave at t, by the database's clock; a t that has
// passed is at once.
func WithDueAt(t time.Time) PublishOption {
	return func(o *publishOptions) {
		if t.IsZero() {
			o.fail("WithDueAt: the time is zero")
			return
		}
		o.dueAt = t
	}
}

// WithKey orders the message among those with the same key: if a Publish begins
// after the commit of another has returned, in whatever process, its message is
// sent after the other one, and handled after it by subscriptions with
// subscribe.Ordered, through retries. Until a message is sent, or has failed for
// good, those behind it with its key wait, of whatever topic; other keys do not.
//
// Transactions that overlap have no order, unless they lock a common row before
// they publish. The key is 1 to 255 bytes of UTF-8 without NUL, and travels as
// header cap-key. It excludes WithDelay and WithDueAt.
func WithKey(key string) PublishOption {
	return func(o *publishOptions) {
		switch {
		case key == "" || len(key) > storage.MaxKeyBytes:
			o.fail("WithKey: the key has %d bytes; 1 to %d are allowed", len(key), storage.MaxKeyBytes)
		case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
			o.fail("WithKey: %q is not valid UTF-8 without NUL", key)
		default:
			o.key = key
		}
	}
}

// WithCodec encodes this message, such as transport.Bytes. Its handlers need the
// same (subscribe.Codec): nothing on the wire says which it was.
func WithCodec(c transport.Codec) PublishOption {
	return func(o *publishOptions) {
		if c == nil {
			o.fail("WithCodec: the codec is nil")
		}
		o.codec = c
	}
}

// headersOf completes the headers of a message. The options' map is not
// changed: an option can be used for many messages.
func (o *publishOptions) headersOf(id storage.ID, topic, typeName string, now time.Time) map[string]string {
	h := make(map[string]string, len(o.headers)+7)
	h[transport.HeaderCorrelationID] = id.String()
	h[transport.HeaderCorrelation] = "0"
	maps.Copy(h, o.headers)
	h[transport.HeaderID] = id.String()
	h[transport.HeaderTopic] = topic
	h[transport.HeaderType] = typeName
	if o.key != "" {
		h[transport.HeaderKey] = o.key
	}
	h[transport.HeaderSentTime] = now.UTC().Format(time.RFC3339Nano)
	return h
}
