//go:build !capnofx

// Command idempotent shows ways to have an effect once, though its message is
// delivered ten times. An event says that 10 were paid from an account with 100;
// each way debits an account of its own, whose balance must be 90 in the end.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"go.uber.org/fx"
	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/idempotency"
	"github.com/capbus/gocap/idempotency/gormtracker"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// A way is one lesson, with the account on which it works.
type way struct {
	account string
	handle  handler
	balance func(db *gorm.DB, account string) (int, error)
}

func ways(db *gorm.DB) []way {
	return []way{
		{"nothing", func(_ context.Context, p Paid) error { return debit(db, "nothing", p.Amount) }, balance},
		{"absolute", absolute(db), balance},
		{"mark", mark(db), left},
		{"insert", insert(db), left},
		{"precondition", precondition(db), balance},
		{"optimistic lock", optimistic(db), balance},
		{"tracker", nil, balance},      // Till, in tracker.go
		{"business key", nil, balance}, // in businesskey.go
		{"transactional", gormstore.Handle(transactional), balance},
	}
}

// subscriptions are those of the ways with a handler, and the business key's.
func subscriptions(store *gormstore.Store) []subscribe.Subscription {
	subs := []subscribe.Subscription{businessKey(store.DB())}
	for _, w := range ways(store.DB()) {
		if w.handle != nil {
			subs = append(subs, subscribe.To("order.paid", w.handle, subscribe.Group(w.account), subscribe.With(lossy)))
		}
	}
	return subs
}

// run delivers the event, and returns the balances by account.
func run(ctx context.Context, file string) (balances map[string]int, err error) {
	store, err := openBooks(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	tracker := gormtracker.New(store.DB(), gormtracker.Config{})
	if err := tracker.Migrate(ctx); err != nil {
		return nil, err
	}
	for _, w := range ways(store.DB()) {
		if err := openAccount(store.DB(), w.account); err != nil {
			return nil, err
		}
	}
	var bus *cap.Bus
	queue := memqueue.New(memqueue.Config{})
	app := fx.New(
		fx.NopLogger,
		fx.Supply(cap.Options{
			Registry: &subscribe.Registry{}, ImmediateRetries: times,
			Logger: slog.New(slog.DiscardHandler), // most attempts fail, on purpose
		}, store, fx.Annotate(tracker, fx.As(new(idempotency.Tracker)))),
		fx.Provide(
			func(s *gormstore.Store) storage.Storage { return s },
			func() transport.Transport { return queue },
			NewTill, cap.Module,
		),
		cap.Handlers(
			subscriptions,
			func(t *Till) ([]subscribe.Subscription, error) { return subscribe.Tagged(t, subscribe.With(lossy)) },
		),
		fx.Populate(&bus),
	)
	if err := app.Start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, app.Stop(context.WithoutCancel(ctx))) }()
	if err := deliver(ctx, bus, queue, len(ways(store.DB()))-1); err != nil {
		return nil, err
	}
	balances = map[string]int{}
	for _, w := range ways(store.DB()) {
		if balances[w.account], err = w.balance(store.DB(), w.account); err != nil {
			return nil, err
		}
	}
	return balances, nil
}

func main() {
	dir, err := os.MkdirTemp("", "idempotent")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	balances, err := run(context.Background(), filepath.Join(dir, "books.db"))
	check(err)
	fmt.Println("An event is delivered ten times; 90 is right.")
	for _, w := range ways(nil) {
		fmt.Printf("%16s: %3d\n", w.account, balances[w.account])
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
