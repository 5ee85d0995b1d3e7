// Command hello publishes one message in a transaction and handles it.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

type Product struct{ ID, Name string }

type ProductAdded struct{ ID string }

func main() {
	store, err := sqlite.Open("hello.db", sqlite.Config{})
	check(err)
	defer func() { check(store.Close()) }()
	check(store.DB().AutoMigrate(&Product{}))

	cap.Subscribe("product.added", func(_ context.Context, p ProductAdded) error {
		log.Println("handled:", p.ID) // an error would be tried again
		return nil
	}, subscribe.Group("coupon"))

	bus, err := cap.New(cap.Options{Storage: store, Transport: memqueue.New(memqueue.Config{})})
	check(err)
	check(bus.Start(context.Background()))                   // makes its own tables, sends, receives
	defer func() { check(bus.Stop(context.Background())) }() // lets what is under way finish

	check(store.DB().Transaction(func(tx *gorm.DB) error {
		p := Product{ID: cap.NewID(), Name: "lamp"}
		if err := tx.Create(&p).Error; err != nil {
			return err
		}
		return cap.Publish(context.Background(), tx, "product.added", ProductAdded{ID: p.ID})
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
