// Command delay measures how long after they are due delayed messages are sent,
// while others are published beside them. It makes tables of its own (a file of
// its own on SQLite) and drops them.
//
//	go run ./delay -postgres 'postgres://postgres@127.0.0.1:5432/bench'
//	go run ./delay -sqlite /tmp/delay.db
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// options are the flags.
type options struct {
	postgres, sqlite string
	messages, beside int
	over             time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.postgres, "postgres", "", "DSN of PostgreSQL")
	flag.StringVar(&o.sqlite, "sqlite", "", "a file that is not there yet")
	flag.IntVar(&o.messages, "messages", 2000, "delayed messages")
	flag.DurationVar(&o.over, "over", 30*time.Second, "the span of their due times")
	flag.IntVar(&o.beside, "beside", 100, "messages a second published beside")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "delay:", err)
		os.Exit(1)
	}
}

func open(o options) (*gormstore.Store, error) {
	switch {
	case o.postgres != "":
		return postgres.Open(o.postgres, postgres.Config{TablePrefix: "delay_"})
	case o.sqlite != "":
		return sqlite.Open(o.sqlite, sqlite.Config{TablePrefix: "delay_"})
	}
	return nil, errors.New("give -postgres or -sqlite")
}

func run(ctx context.Context, o options) (err error) {
	store, err := open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.MigrateDown(context.WithoutCancel(ctx), 0), store.Close()) }()
	s := &sink{left: o.messages, empty: make(chan struct{})}
	bus, err := cap.New(cap.Options{
		Storage: store, Transport: s, Registry: &subscribe.Registry{}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	if err := bus.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bus.Stop(context.WithoutCancel(ctx))) }()
	first := time.Now().Add(5 * time.Second) // they are all published by then
	if err := publish(ctx, bus, o, first); err != nil {
		return err
	}
	if late := time.Since(first); late > 0 {
		return fmt.Errorf("publishing took %s too long", late)
	}
	if err := besides(ctx, bus, o, s.empty); err != nil {
		return err
	}
	slices.Sort(s.late)
	at := func(q int) float64 { return float64(s.late[(len(s.late)-1)*q/1000].Microseconds()) / 1000 }
	fmt.Printf("%d messages: sent after they were due: first %.1f ms, p50 %.1f ms, p99 %.1f ms, last %.1f ms\n",
		len(s.late), at(0), at(500), at(990), at(1000))
	return nil
}

// publish writes the delayed messages, each with its due time as the body.
func publish(ctx context.Context, bus *cap.Bus, o options, first time.Time) error {
	for range o.messages / 100 {
		err := bus.InTx(ctx, func(ctx context.Context, tx cap.Tx) error {
			var out []cap.Outgoing
			for range 100 {
				due := first.Add(rand.N(o.over)).Truncate(time.Microsecond) //nolint:gosec // load
				out = append(out, cap.Outgoing{Topic: "delayed", Msg: due.UnixMicro(), Opts: []cap.PublishOption{cap.WithDueAt(due)}})
			}
			return bus.PublishMany(ctx, tx, out...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// besides publishes others, in transactions of their own, until done.
func besides(ctx context.Context, bus *cap.Bus, o options, done <-chan struct{}) error {
	tick := time.NewTicker(time.Second / time.Duration(o.beside))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		err := bus.InTx(ctx, func(ctx context.Context, tx cap.Tx) error { return bus.Publish(ctx, tx, "beside", 1) })
		if err != nil {
			return err
		}
	}
}

// sink takes every message, and notes how late the delayed ones are.
type sink struct {
	empty chan struct{}

	mu   sync.Mutex
	left int
	late []time.Duration
}

func (s *sink) Send(_ context.Context, msgs []*transport.Message) []error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		if m.Topic != "delayed" {
			continue
		}
		due, err := strconv.ParseInt(string(m.Body), 10, 64)
		errs[i] = err
		s.late = append(s.late, now.Sub(time.UnixMicro(due)))
		if s.left--; s.left == 0 {
			close(s.empty)
		}
	}
	return errs
}

func (*sink) Receive(ctx context.Context, _ transport.Source, _ func(context.Context, []transport.Delivery)) error {
	<-ctx.Done()
	return nil
}

func (*sink) Check(context.Context) error { return nil }

func (*sink) Traits() transport.Traits { return transport.Traits{Name: "sink"} }
