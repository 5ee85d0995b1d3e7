package cap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/capbus/gocap/transport"
)

// declare makes the queues of the bus known before anything is sent. A broker
// that is away does not fail the start: they are declared when it is back.
func (b *Bus) declare(ctx context.Context, e *engines) error {
	err := e.sender.declare(ctx)
	if errors.Is(err, transport.ErrUnavailable) {
		b.log.Warn(ctx, "broker unavailable, queues are declared later", "", slog.Any("err", err))
		return nil
	}
	return err
}

// declaring is a transport that sends nothing before the queues of the bus are
// declared: a message could reach one group, count as sent, and miss another.
type declaring struct {
	transport.Transport

	srcs []transport.Source
	done atomic.Bool
}

func (d *declaring) declare(ctx context.Context) error {
	dc, ok := d.Transport.(transport.Declarer)
	if !ok || d.done.Load() {
		return nil
	}
	for _, src := range d.srcs { // by many at once, perhaps: it may be repeated
		if err := dc.Declare(ctx, src); err != nil {
			return fmt.Errorf("queue %s: %w", src.Group, err)
		}
	}
	d.done.Store(true)
	return nil
}

// Check is the probe of the circuit breaker, which stays open until it succeeds.
func (d *declaring) Check(ctx context.Context) error {
	if err := d.declare(ctx); err != nil {
		return err
	}
	return d.Transport.Check(ctx)
}

func (d *declaring) Send(ctx context.Context, msgs []*transport.Message) []error {
	if err := d.declare(ctx); err != nil {
		errs := make([]error, len(msgs))
		for i := range errs {
			errs[i] = fmt.Errorf("%w: %w", transport.ErrUnavailable, err)
		}
		return errs
	}
	return d.Transport.Send(ctx, msgs)
}
