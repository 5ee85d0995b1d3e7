package subscribe

import (
	"context"
	"fmt"
	"reflect"

	"github.com/capbus/gocap/transport"
)

// Handler handles one message. An error is a failed attempt.
type Handler interface {
	Handle(ctx context.Context, m *transport.Message) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, m *transport.Message) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, m *transport.Message) error { return f(ctx, m) }

// Middleware wraps a Handler; With and Options.Middleware say where it stands. It
// may replace the message (InfoFromContext keeps the one that came), answer
// without calling the next one, or handle the next one's error: what it returns
// is the answer of the handler. It is called once, at the start of the bus; the
// Handler that it returns is called by many goroutines.
type Middleware func(Handler) Handler

// decode returns the value that a handler of T takes. T = *transport.Message is
// the message itself, a copy of it.
func decode[T any](codec transport.Codec, m *transport.Message) (T, error) {
	var v T
	if raw, ok := any(&v).(**transport.Message); ok {
		*raw = m.Clone()
		return v, nil
	}
	if err := codec.Decode(m.Body, &v); err != nil {
		return v, Reject(fmt.Errorf("body cannot be decoded as %s: %w", reflect.TypeFor[T](), err))
	}
	return v, nil
}
