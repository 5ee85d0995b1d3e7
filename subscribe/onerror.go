package subscribe

import (
	"context"
	"errors"

	"github.com/capbus/gocap/transport"
)

// OnError is middleware that lets f say what becomes of an error of the handler,
// or of middleware inside of it: a policy by kinds of error. f returns Reject,
// RetryAfter or Snooze, another error, which is then that of the attempt, or nil:
// then the message is handled, and what the handler has written in the inbox
// transaction is committed.
//
// f is not asked about a panic, nor about a run that a stop or a lost lease has
// cut: that is no answer.
func OnError(f func(ctx context.Context, err error) error) Middleware {
	if f == nil {
		return nil // With and Validate report it
	}
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, m *transport.Message) error {
			err := next.Handle(ctx, m)
			if err == nil || ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return err
			}
			return f(ctx, err)
		})
	}
}
