package subscribe

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/capbus/gocap/transport"
)

var errNotReturned = errors.New("the handler did not return: it panicked, or ended its goroutine")

// Logging is middleware that writes a line for each run, at a level: topic,
// group, subscriber, message id, attempt, how long it took, and its error. Failed
// attempts are in the bus's log without it, those of one subscription at most
// once in a while. A nil log means slog.Default().
func Logging(log *slog.Logger, level slog.Level) Middleware {
	if log == nil {
		log = slog.Default()
	}
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, m *transport.Message) error {
			begun, err := time.Now(), errNotReturned
			defer func() {
				info, _ := InfoFromContext(ctx)
				log.LogAttrs(ctx, level, "handler has run", slog.String("topic", m.Topic), slog.String("group", info.Group),
					slog.String("subscriber", info.Subscriber), slog.String("msg_id", m.ID), slog.Int("attempt", info.Attempt),
					slog.Duration("took", time.Since(begun)), slog.Any("err", err))
			}()
			err = next.Handle(ctx, m)
			return err
		})
	}
}
