// Command cqrs is a program on Watermill's CQRS component that gets an outbox. Its
// lesson: one line changes, the publisher of the event bus; the event goes into the
// transaction, and its handlers stay Watermill's.
//
//	go run ./examples/cqrs
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/cap/capwm"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/transport/wmadapter"
)

// Room is a row of the program's own.
type Room struct {
	Number int `gorm:"primaryKey;autoIncrement:false"`
	Guest  string
}

// RoomBooked is the event.
type RoomBooked struct {
	Number int
	Guest  string
}

func main() {
	dir, err := os.MkdirTemp("", "gocap-cqrs-")
	if err == nil {
		err = errors.Join(run(context.Background(), os.Stdout, dir), os.RemoveAll(dir))
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, dir string) (err error) {
	store, err := sqlite.Open(filepath.Join(dir, "hotel.db"), sqlite.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.DB().WithContext(ctx).AutoMigrate(&Room{}); err != nil {
		return err
	}

	// What this program had before: a broker (here in memory), and a router with a
	// handler of the event.
	broker := gochannel.NewGoChannel(gochannel.Config{}, nil)
	handled := make(chan string, 10)
	router, err := startRouter(ctx, broker, handled)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, router.Close()) }() // again, if all goes well

	// New: a bus, which sends what stands in the outbox through the same broker.
	bus, err := cap.New(cap.Options{
		Storage: store, Transport: wmadapter.New(wmadapter.Config{Name: "gochannel", Publisher: broker, NoQueue: true}),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	if err := bus.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bus.Stop(ctx)) }()

	// The changed line: it was NewEventBusWithConfig(broker, …).
	events, err := cqrs.NewEventBusWithConfig(capwm.NewPublisher(bus), cqrs.EventBusConfig{
		GeneratePublishTopic: func(p cqrs.GenerateEventPublishTopicParams) (string, error) { return p.EventName, nil },
		Marshaler:            marshaler(),
	})
	if err != nil {
		return err
	}

	for _, e := range []RoomBooked{{7, "Ada"}, {7, "Bob"}, {8, "Eve"}} { // Bob comes too late
		err := book(ctx, store.DB(), events, e)
		if _, printErr := fmt.Fprintf(out, "%s: booked %t\n", e.Guest, err == nil); printErr != nil {
			return printErr
		}
	}
	told := []string{<-handled, <-handled}
	if err := errors.Join(bus.Stop(ctx), router.Close()); err != nil {
		return err
	}
	close(handled)
	for guest := range handled {
		told = append(told, guest) // Bob's event would be here
	}
	slices.Sort(told)
	_, err = fmt.Fprintln(out, "events of:", told)
	return err
}

// book publishes first, to show that a rollback takes the event back.
func book(ctx context.Context, db *gorm.DB, events *cqrs.EventBus, e RoomBooked) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := events.Publish(cap.ContextWithTx(ctx, tx), e); err != nil {
			return err
		}
		return tx.Create(&Room{Number: e.Number, Guest: e.Guest}).Error
	})
}

func marshaler() cqrs.JSONMarshaler { return cqrs.JSONMarshaler{GenerateName: cqrs.StructName} }

func startRouter(ctx context.Context, sub message.Subscriber, handled chan<- string) (*message.Router, error) {
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	processor, err := cqrs.NewEventProcessorWithConfig(router, cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(p cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return p.EventName, nil },
		SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return sub, nil
		},
		Marshaler: marshaler(),
	})
	if err != nil {
		return nil, err
	}
	if err := processor.AddHandlers(cqrs.NewEventHandler("welcome", func(_ context.Context, e *RoomBooked) error {
		handled <- e.Guest
		return nil
	})); err != nil {
		return nil, err
	}
	go func() { _ = router.Run(ctx) }() // it ends with Close
	<-router.Running()
	return router, nil
}
