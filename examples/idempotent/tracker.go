package main

import (
	"context"
	"errors"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/idempotency"
	"github.com/capbus/gocap/idempotency/gormtracker"
	"github.com/capbus/gocap/subscribe"
)

// Till debits an account once for each message: its tracker remembers which
// messages are done. It depends on the interface; the container has the tracker.
type Till struct {
	subscribe.Class `cap:"order,group=tracker"`

	Paid subscribe.On[Paid] `cap:"paid"`

	tracker idempotency.Tracker
}

// NewTill is a constructor for fx.
func NewTill(tracker idempotency.Tracker) *Till {
	t := &Till{tracker: tracker}
	t.Paid = t.paid
	return t
}

func (t *Till) paid(ctx context.Context, p Paid) error {
	info, _ := cap.InfoFromContext(ctx)
	return t.tracker.Once(ctx, "till "+info.Message.ID, func(ctx context.Context) error {
		// The key and what is written in this transaction are one.
		tx, ok := gormtracker.TxFromContext(ctx)
		if !ok {
			return errors.New("the tracker has no transaction; the till needs a gormtracker")
		}
		return debit(tx, "tracker", p.Amount)
	})
}
