package cap

import (
	"context"
	"fmt"

	"github.com/capbus/gocap/operator"
)

// Operator returns what lists, requeues, cancels and deletes the messages of the
// bus's storage. The bus need not run; while it does, what is requeued is sent,
// or handled, at once. Error: operator.ErrUnsupported.
func (b *Bus) Operator() (*operator.Operator, error) {
	o, err := operator.New(b.opts.Storage, operator.Config{Wake: b.Wake})
	if err != nil {
		return nil, fmt.Errorf("cap: %w", err)
	}
	return o, nil
}

// Cancel deletes a message that was published with WithDelay or WithDueAt and is
// not due yet. id is that of WithID. When it returns nil the message is never
// sent; when it was due already, it is operator.ErrInWork or
// operator.ErrNotDelayed, or operator.ErrNotFound if it is not there any more.
func (b *Bus) Cancel(ctx context.Context, id string) error {
	o, err := b.Operator()
	if err != nil {
		return err
	}
	r, err := o.Cancel(ctx, id)
	if err == nil && r.Refused > 0 {
		err = r.Refusals[0].Err
	}
	if err != nil {
		return fmt.Errorf("cap: cancel %s: %w", id, err)
	}
	return nil
}
