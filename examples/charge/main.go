// Command charge shows what the inbox transaction is for. A handler charges an
// account, and writing its log then fails, twice. In the inbox transaction
// (gormstore.Handle) the account is charged once; without it, three times: each
// run has left its charge behind.
//
//	go run ./examples/charge
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

type Charge struct {
	ID    uint
	Order string
}

type LogLine struct {
	ID   uint
	Text string
}

type Order struct{ ID string }

// bill charges for an order, writes a line about it, and says so.
func bill(ctx context.Context, db *gorm.DB, o Order) error {
	if err := db.Create(&Charge{Order: o.ID}).Error; err != nil {
		return err
	}
	if info, _ := cap.InfoFromContext(ctx); info.Attempt <= 2 {
		return errors.New("the log is full") // somebody has emptied it before the third run
	}
	if err := db.Create(&LogLine{Text: "charged for " + o.ID}).Error; err != nil {
		return err
	}
	return cap.Publish(ctx, nil, "order.billed", o)
}

func main() {
	store, err := sqlite.Open(":memory:", sqlite.Config{})
	check(err)
	defer func() { check(store.Close()) }()
	check(store.DB().AutoMigrate(&Charge{}, &LogLine{}))

	billed := make(chan string)
	bus, err := cap.New(cap.Options{
		Storage: store, Transport: memqueue.New(memqueue.Config{}), Registry: &subscribe.Registry{},
		DefaultGroupName: "billing", Logger: slog.New(slog.DiscardHandler),
		Subscriptions: []subscribe.Subscription{
			subscribe.To("order.placed.with", gormstore.Handle(bill)),
			subscribe.To("order.placed.without", func(ctx context.Context, o Order) error {
				return bill(ctx, store.DB().WithContext(ctx), o)
			}),
			subscribe.To("order.billed", func(_ context.Context, o Order) error {
				billed <- o.ID
				return nil
			}),
		},
	})
	check(err)
	ctx := context.Background()
	check(bus.Start(ctx))
	defer func() { check(bus.Stop(ctx)) }()

	for _, how := range []string{"with", "without"} {
		check(bus.Publish(ctx, cap.NoTx, "order.placed."+how, Order{ID: how}))
		id := <-billed
		var charges int64
		check(store.DB().Model(&Charge{}).Where(&Charge{Order: id}).Count(&charges).Error)
		fmt.Printf("%s the inbox transaction, charges: %d\n", id, charges)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
