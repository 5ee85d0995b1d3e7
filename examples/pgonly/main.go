// Command pgonly is a service that needs nothing but its PostgreSQL: the database
// keeps its tables, the outbox, the inbox, and is the broker.
package main

import (
	"cmp"
	"context"
	"log"
	"os"
	"os/signal"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/sqlqueue"
)

type Order struct {
	ID     string
	Amount int
}

type OrderPlaced struct {
	ID     string
	Amount int
}

// Charge is what another part of the service writes when it hears of an order.
type Charge struct {
	OrderID string `gorm:"primaryKey"`
	Amount  int
}

func main() {
	dsn := cmp.Or(os.Getenv("DATABASE_URL"), "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable")
	store, err := postgres.Open(dsn, postgres.Config{})
	check(err)
	defer func() { check(store.Close()) }()
	check(store.DB().AutoMigrate(&Order{}, &Charge{}))

	cap.Subscribe("order.placed", gormstore.Handle(func(_ context.Context, tx *gorm.DB, o OrderPlaced) error {
		return tx.Create(&Charge{OrderID: o.ID, Amount: o.Amount}).Error // once, whatever happens
	}), subscribe.Group("billing"))
	cap.Subscribe("order.*", func(_ context.Context, o OrderPlaced) error {
		log.Println("packing:", o.ID)
		return nil
	}, subscribe.Group("warehouse"))

	queue := sqlqueue.New(sqlqueue.Config{DSN: dsn})
	defer func() { check(queue.Close()) }() // after the bus
	bus, err := cap.New(cap.Options{Storage: store, Transport: queue})
	check(err)
	check(bus.Start(context.Background()))
	defer func() { check(bus.Stop(context.Background())) }()

	check(store.DB().Transaction(func(tx *gorm.DB) error {
		o := Order{ID: cap.NewID(), Amount: 42}
		if err := tx.Create(&o).Error; err != nil {
			return err
		}
		return cap.Publish(context.Background(), tx, "order.placed", OrderPlaced(o))
	}))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	<-ctx.Done() // Ctrl-C
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
