// Command idle measures what a bus costs that has nothing to do: statements a
// second on each table, and the processor time of the process. It makes tables
// of its own and drops them.
//
//	go run ./idle -postgres 'postgres://postgres@127.0.0.1:5432/bench' -for 60s
//	go run ./idle -mysql 'root@tcp(127.0.0.1:3306)/bench?interpolateParams=true' -for 60s
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	gormmysql "gorm.io/driver/mysql"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

const prefix = "idle_"

func main() {
	pg := flag.String("postgres", "", "DSN of PostgreSQL")
	my := flag.String("mysql", "", "DSN of MySQL or MariaDB")
	long := flag.Duration("for", time.Minute, "how long to measure")
	locked := flag.Bool("locked", false, "with UseStorageLock")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *pg, *my, *long, *locked); err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pg, my string, long time.Duration, locked bool) (err error) {
	c := &counter{of: map[string]int{}}
	store, err := open(c, pg, my)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.MigrateDown(context.WithoutCancel(ctx), 0), store.Close()) }()
	nothing := func(context.Context, string) error { return nil }
	bus, err := cap.New(cap.Options{
		Storage: store, Transport: memqueue.New(memqueue.Config{}), Registry: &subscribe.Registry{}, DefaultGroupName: "idle",
		Logger: slog.New(slog.DiscardHandler), UseStorageLock: locked,
		Subscriptions: []subscribe.Subscription{
			subscribe.To("a", nothing), subscribe.To("b.#", nothing, subscribe.Group("g")),
			subscribe.To("c", nothing, subscribe.Group("h"), subscribe.Ordered()),
		},
	})
	if err != nil {
		return err
	}
	if err := bus.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bus.Stop(context.WithoutCancel(ctx))) }()
	if err := wait(ctx, 5*time.Second); err != nil { // it has found that there is nothing
		return err
	}
	c.taken()
	before, begun := processorTime(), time.Now()
	if err := wait(ctx, long); err != nil {
		return err
	}
	used, seen, took := processorTime()-before, c.taken(), time.Since(begun).Seconds()
	for _, table := range slices.Sorted(tables()) {
		fmt.Printf("%-10s %.2f statements/s\n", table, float64(seen[table])/took)
	}
	fmt.Printf("%-10s %.2f %% of a processor\n", "", 100*used.Seconds()/took)
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// open makes a store whose statements are counted.
func open(c *counter, pg, my string) (*gormstore.Store, error) {
	cfg := gormstore.Config{TablePrefix: prefix}
	var pool *sql.DB
	var dialector gorm.Dialector
	switch {
	case pg != "":
		conn, err := pgx.ParseConfig(pg)
		if err != nil {
			return nil, err
		}
		pool = sql.OpenDB(counting{stdlib.GetConnector(*conn), c})
		dialector, cfg.Unprepared = gormpostgres.New(gormpostgres.Config{Conn: pool}), pgx.QueryExecModeExec
	case my != "":
		conn, err := driver.ParseDSN(my)
		if err != nil {
			return nil, err
		}
		connector, err := driver.NewConnector(conn)
		if err != nil {
			return nil, err
		}
		pool = sql.OpenDB(counting{connector, c})
		dialector = gormmysql.New(gormmysql.Config{Conn: pool})
	default:
		return nil, errors.New("give -postgres or -mysql")
	}
	pool.SetMaxOpenConns(10)
	pool.SetMaxIdleConns(10)
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	cfg.Closer = pool
	store := gormstore.New(db, cfg)
	return store, store.Validate()
}
