package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
)

// A row that is written in a transaction is seen by its owner after the commit.
func Example() {
	ctx := context.Background()
	store := memstore.New(memstore.Config{})

	sender, err := store.Join(ctx, storage.Instance{Box: storage.Outbox, Version: "v1", Lease: 15 * time.Second})
	if err != nil {
		panic(err)
	}
	tx, err := store.Begin(ctx)
	if err != nil {
		panic(err)
	}
	defer func() { _ = tx.Rollback() }()
	rec := &storage.Record{ID: ids.New(), Version: "v1", Topic: "product.deleted", Owner: sender.Number(), Body: []byte(`{"id":7}`)}
	if err := tx.Append(ctx, rec); err != nil {
		panic(err)
	}

	query := storage.Query{Lanes: []storage.Lane{{Limit: 10}}}
	due, _, _ := sender.Due(ctx, query)
	fmt.Println("before the commit:", len(due))

	if err := tx.Commit(); err != nil {
		panic(err)
	}
	due, _, _ = sender.Due(ctx, query)
	fmt.Println("after it:", due[0].Topic, string(due[0].Body))

	lost, err := sender.Settle(ctx, storage.Outcome{ID: due[0].ID, Kind: storage.Succeed, After: time.Hour})
	fmt.Println("settled:", len(lost) == 0, err)
	due, _, _ = sender.Due(ctx, query)
	fmt.Println("still due:", len(due))
	// Output:
	// before the commit: 0
	// after it: product.deleted {"id":7}
	// settled: true <nil>
	// still due: 0
}
