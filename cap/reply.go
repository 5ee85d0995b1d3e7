package cap

import (
	"context"
	"errors"

	"github.com/capbus/gocap/subscribe"
)

// reply publishes the answer of a handler that runs with ctx.
func (b *Bus) reply(ctx context.Context, out subscribe.Outgoing) error {
	opts := make([]PublishOption, 0, len(out.Headers)+2)
	for key, value := range out.Headers {
		opts = append(opts, WithHeader(key, value))
	}
	if out.ReplyTo != "" {
		opts = append(opts, WithReplyTo(out.ReplyTo))
	}
	if out.ID == "" {
		return b.publish(ctx, nil, []Outgoing{{Topic: out.Topic, Msg: out.Value, Opts: opts}})
	}
	err := b.publish(ctx, NoTx, []Outgoing{{Topic: out.Topic, Msg: out.Value, Opts: append(opts, WithID(out.ID))}})
	if errors.Is(err, ErrDuplicate) {
		return nil // of a run before, whose ack was lost
	}
	return err
}
