// Command drain measures how fast a bus empties a backlog into a transport that
// takes everything at once: the outbox alone, without a broker. The backlog is
// what a stopped instance leaves behind. It makes a set of tables for each size,
// drains it, prints the rates and the ratio of the last to the first, and drops
// the tables.
//
//	go run ./drain -postgres 'postgres://postgres@127.0.0.1:5432/bench' -rows 20000,1000000
//
// With -sweep it drains the first size with each SendWindow/BatchSize, by turns,
// and prints the medians; with -rabbitmq, into a queue of its own that nobody
// reads.
//
//	go run ./drain -postgres 'postgres://postgres@127.0.0.1:5432/bench' -rows 20000 -sweep 500/100,2000/500,8000/2000 -runs 5
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/mysql"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

func main() {
	pg := flag.String("postgres", "", "DSN of PostgreSQL")
	my := flag.String("mysql", "", "DSN of MySQL or MariaDB")
	sizes := flag.String("rows", "20000,1000000", "sizes of the backlogs")
	bytes := flag.Int("bytes", 256, "bytes of each body")
	sweep := flag.String("sweep", "", "SendWindow/BatchSize, several with commas between")
	runs := flag.Int("runs", 5, "drains with each, in a sweep")
	broker := flag.String("rabbitmq", "", "URL of RabbitMQ; else into a transport that takes everything")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	d := drainer{pg: *pg, my: *my, broker: *broker, bytes: *bytes}
	if err := d.run(ctx, *sizes, *sweep, *runs); err != nil {
		fmt.Fprintln(os.Stderr, "drain:", err)
		os.Exit(1)
	}
}

// drainer says from where, and whereto.
type drainer struct {
	pg, my, broker string
	bytes          int
	window, batch  int // 0: the default
}

func (d drainer) run(ctx context.Context, sizes, sweep string, runs int) error {
	var rates []float64
	for _, text := range strings.Split(sizes, ",") {
		rows, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		if sweep != "" {
			return d.sweep(ctx, rows, sweep, runs)
		}
		rate, err := d.one(ctx, rows)
		if err != nil {
			return err
		}
		fmt.Printf("%9d rows: %8.0f messages/s\n", rows, rate)
		rates = append(rates, rate)
	}
	fmt.Printf("ratio of the last to the first: %.2f\n", rates[len(rates)-1]/rates[0])
	return nil
}

// one fills tables of its own, drains them, and returns messages a second.
func (d drainer) one(ctx context.Context, rows int) (rate float64, err error) {
	prefix := "drain_" + strconv.Itoa(rows) + "_"
	var store *gormstore.Store
	var fill string
	switch {
	case d.pg != "":
		store, err = postgres.Open(d.pg, postgres.Config{TablePrefix: prefix})
		fill = `INSERT INTO "` + prefix + `published" (id, version, name, headers, body, status, due_at, added_at, updated_at)
			SELECT ('01990000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'v1', 'drain', '{}',
				decode(repeat('61', $1::int), 'hex'), 0, clock_timestamp(), clock_timestamp(), clock_timestamp()
			FROM generate_series(1, $2::int) AS n`
	case d.my != "":
		store, err = mysql.Open(d.my, mysql.Config{TablePrefix: prefix})
		fill = "INSERT INTO `" + prefix + "published` (id, version, name, headers, body, size, status, due_at, added_at, updated_at)" +
			" SELECT unhex(replace(uuid(), '-', '')), 'v1', 'drain', '{}', repeat('a', ?), 258, 0, 1, 1, 1 FROM seq_1_to_" + strconv.Itoa(rows)
	default:
		return 0, errors.New("give -postgres or -mysql")
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.MigrateDown(context.WithoutCancel(ctx), 0), store.Close()) }()
	if err := store.Migrate(ctx); err != nil {
		return 0, err
	}
	args := []any{d.bytes}
	if d.pg != "" {
		args = append(args, rows)
	}
	pool, err := store.DB().DB()
	if err != nil {
		return 0, err
	}
	if _, err := pool.ExecContext(ctx, fill, args...); err != nil {
		return 0, err
	}
	return d.drain(ctx, store, rows)
}

func (d drainer) drain(ctx context.Context, store *gormstore.Store, rows int) (rate float64, err error) {
	s := &sink{left: int64(rows), empty: make(chan struct{})}
	var to transport.Transport = s
	if d.broker != "" {
		b, err := newBroker(ctx, d.broker, s)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, b.close()) }()
		to = b
	}
	bus, err := cap.New(cap.Options{
		Storage: store, Transport: to, Registry: &subscribe.Registry{}, Logger: slog.New(slog.DiscardHandler), SkipMigrations: true,
		SendWindow: d.window, BatchSize: d.batch,
	})
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := bus.Start(ctx); err != nil {
		return 0, err
	}
	select {
	case <-s.empty:
	case <-ctx.Done():
	}
	err = errors.Join(ctx.Err(), bus.Stop(context.WithoutCancel(ctx))) // what was sent is settled
	return float64(rows) / time.Since(begun).Seconds(), err
}

// sink takes every message.
type sink struct {
	left  int64
	empty chan struct{}
}

func (s *sink) Send(_ context.Context, msgs []*transport.Message) []error {
	if atomic.AddInt64(&s.left, -int64(len(msgs))) == 0 {
		close(s.empty)
	}
	return make([]error, len(msgs))
}

func (*sink) Receive(ctx context.Context, _ transport.Source, _ func(context.Context, []transport.Delivery)) error {
	<-ctx.Done()
	return nil
}

func (*sink) Check(context.Context) error { return nil }

func (*sink) Traits() transport.Traits { return transport.Traits{Name: "sink"} }
