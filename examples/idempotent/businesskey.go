package main

import (
	"context"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/idempotency"
	"github.com/capbus/gocap/idempotency/gormtracker"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
)

// businessKey: the sender publishes the same event again, under a new id, because
// it does not know that it has done so. No id tells; the number of the order does.
//
// The tracker works in the inbox transaction, so that the key, the debit and the
// success of the message are one.
func businessKey(db *gorm.DB) subscribe.Subscription {
	tracker := gormtracker.New(db, gormtracker.Config{Tx: cap.TxFromContext})
	byOrder := idempotency.JSONKey(func(p Paid) string { return p.Order })
	return subscribe.To("order.paid.again", gormstore.Handle(func(_ context.Context, tx *gorm.DB, p Paid) error {
		return debit(tx, "business key", p.Amount)
	}), subscribe.Group("business key"), subscribe.With(idempotency.Middleware(tracker, byOrder)))
}
