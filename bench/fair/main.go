// Command fair measures what messages that always fail cost the others: latency
// and throughput of fresh messages with and without a number of failing ones,
// by turns in one run, on PostgreSQL. Failing is refused by the transport
// (-side send) or by a handler of the same group (-side handle). It makes tables
// of its own and drops them.
//
//	go run ./fair -postgres 'postgres://postgres@127.0.0.1:5432/bench' -side send
//	go run ./fair -postgres 'postgres://postgres@127.0.0.1:5432/bench' -side handle
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
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/subscribe"
)

// options are the flags.
type options struct {
	postgres, side       string
	failing, rate, burst int
	interval, long       time.Duration
	rounds               int
}

func main() {
	var o options
	flag.StringVar(&o.postgres, "postgres", "", "DSN of PostgreSQL")
	flag.StringVar(&o.side, "side", "send", "send or handle")
	flag.IntVar(&o.failing, "failing", 10_000, "messages that always fail")
	flag.DurationVar(&o.interval, "interval", time.Minute, "mean wait between two attempts of one")
	flag.IntVar(&o.rate, "rate", 200, "fresh messages a second, for the latency")
	flag.DurationVar(&o.long, "for", 5*time.Second, "how long, each time")
	flag.IntVar(&o.burst, "burst", 5000, "fresh messages at once, for the throughput; 0: none")
	flag.IntVar(&o.rounds, "rounds", 5, "measurements of each kind")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "fair:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	store, err := postgres.Open(o.postgres, postgres.Config{TablePrefix: "fair_", MaxConns: 16})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.MigrateDown(context.WithoutCancel(ctx), 0), store.Close()) }()
	m := newMeter()
	opts := cap.Options{
		Storage: store, Registry: &subscribe.Registry{}, Logger: slog.New(slog.DiscardHandler),
		FailedRetryCount: 1_000_000, ImmediateRetries: -1,
		RetryBackoff: func(int) time.Duration { return rand.N(2 * o.interval) }, //nolint:gosec // so that they come evenly
	}
	if opts.Transport, opts.Subscriptions, err = m.sided(o.side); err != nil {
		return err
	}
	bus, err := cap.New(opts)
	if err != nil {
		return err
	}
	if err := bus.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bus.Stop(context.WithoutCancel(ctx))) }()
	var without, with sample
	for range o.rounds {
		if err := measure(ctx, bus, m, o, &without); err != nil {
			return err
		}
		if err := m.fail(ctx, bus, o); err != nil {
			return err
		}
		if err := measure(ctx, bus, m, o, &with); err != nil {
			return err
		}
		for _, table := range []string{"fair_published", "fair_received"} {
			// It may meet a settle in a deadlock, and is repeated.
			err := until(ctx, func() bool {
				return store.DB().WithContext(ctx).Exec("DELETE FROM "+table+" WHERE name = 'bad'").Error == nil
			})
			if err != nil {
				return err
			}
		}
	}
	without.print("without", o)
	with.print("with", o)
	return nil
}

// sample is the results of measurements.
type sample struct {
	p50, p99 []time.Duration
	rate     []float64 // fresh messages a second of a burst
	failed   []float64 // failing attempts a second meanwhile
}

func (s *sample) print(what string, o options) {
	fmt.Printf("%-8s p50 %6.2f ms, p99 %7.2f ms, %7.0f fresh/s of a burst; %5.0f failing attempts/s (medians of %d)\n", what,
		ms(median(s.p50)), ms(median(s.p99)), median(s.rate), median(s.failed), o.rounds)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func median[T int64 | float64 | time.Duration](list []T) T {
	if len(list) == 0 {
		return 0
	}
	list = slices.Clone(list)
	slices.Sort(list)
	return list[len(list)/2]
}

// measure adds one measurement.
func measure(ctx context.Context, bus *cap.Bus, m *meter, o options, s *sample) error {
	failed, begun := m.failures.Load(), time.Now()
	n := int(o.long.Seconds() * float64(o.rate))
	tick := time.NewTicker(time.Second / time.Duration(o.rate))
	defer tick.Stop()
	m.expect(n)
	for range n {
		<-tick.C
		if err := bus.Publish(ctx, cap.NoTx, "fresh", time.Now().UnixNano()); err != nil {
			return err
		}
	}
	took, err := m.wait(ctx)
	if err != nil {
		return err
	}
	slices.Sort(took)
	s.p50, s.p99 = append(s.p50, took[len(took)/2]), append(s.p99, took[len(took)*99/100])
	s.failed = append(s.failed, float64(m.failures.Load()-failed)/time.Since(begun).Seconds())
	if o.burst == 0 {
		return nil
	}
	begun = time.Now()
	m.expect(o.burst)
	if err := publish(ctx, bus, "fresh", o.burst); err != nil {
		return err
	}
	if _, err = m.wait(ctx); err != nil {
		return err
	}
	s.rate = append(s.rate, float64(o.burst)/time.Since(begun).Seconds())
	return nil
}

// publish writes n messages, 500 in a transaction.
func publish(ctx context.Context, bus *cap.Bus, topic string, n int) error {
	for from := 0; from < n; from += 500 {
		err := bus.InTx(ctx, func(ctx context.Context, tx cap.Tx) error {
			var out []cap.Outgoing
			for range min(500, n-from) {
				out = append(out, cap.Outgoing{Topic: topic, Msg: time.Now().UnixNano()})
			}
			return bus.PublishMany(ctx, tx, out...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
