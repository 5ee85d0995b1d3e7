package pgxtx_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/pgxtx"
)

// Bind is given to the storage once; then Publish takes transactions of pgx.
func ExampleBind() {
	binders := []storage.TxBinder{pgxtx.Bind} // Binders in the storage's Config

	_, _, err := binders[0](&pgxpool.Pool{})
	fmt.Println(err)
	// Output:
	// *pgxpool.Pool cannot be used as a transaction; accepted: pgx.Tx (it is a pool of connections: begin a transaction with its Begin)
}

// The Tracer belongs into the config of the application's own pool. A tracer
// that is there already goes on being told.
func ExampleTracer() {
	cfg, err := pgxpool.ParseConfig("postgres://shop@db.internal/shop")
	if err != nil {
		panic(err)
	}
	cfg.ConnConfig.Tracer = pgxtx.Tracer{Next: cfg.ConnConfig.Tracer}

	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	fmt.Printf("%T\n", pool.Config().ConnConfig.Tracer)
	// Output: pgxtx.Tracer
}
