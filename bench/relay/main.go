// Command relay measures two stages with default Options, our bus and a
// hand-written raw limit by turns: the relay of a backlog from PostgreSQL into
// one durable queue of RabbitMQ, and a queue's way through the inbox to a handler
// that does nothing, until all is settled. Both sides have the same tables and
// the same queue. It prints medians and their ratio, and what each run had is
// checked in the queue and in the table. Tables, exchange and queue are its own,
// and are removed at the end.
//
//	go run ./relay -postgres 'postgres://postgres@127.0.0.1:5432/bench' -rabbitmq amqp://guest:guest@127.0.0.1:5672/ -queue classic
//
// With -sides ours -stages relay -cpuprofile FILE it profiles one side of a stage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/capbus/gocap/transport/rabbitmq"
)

// options are the flags.
type options struct {
	postgres, rabbitmq, queue   string
	stages, sides, profile      string
	rows, bytes, runs, prefetch int
}

func main() {
	var o options
	flag.StringVar(&o.postgres, "postgres", "", "DSN of PostgreSQL")
	flag.StringVar(&o.rabbitmq, "rabbitmq", rabbitmq.DefaultURL, "URL of RabbitMQ")
	flag.StringVar(&o.queue, "queue", "classic", "classic or quorum, on both sides")
	flag.StringVar(&o.stages, "stages", "relay,consume", "what to measure")
	flag.StringVar(&o.sides, "sides", "ours,raw", "who takes turns")
	flag.StringVar(&o.profile, "cpuprofile", "", "file for a CPU profile of the measured runs and their preparation")
	flag.IntVar(&o.rows, "rows", 20_000, "messages in a run")
	flag.IntVar(&o.bytes, "bytes", 256, "bytes of each body")
	flag.IntVar(&o.runs, "runs", 5, "runs of each side")
	flag.IntVar(&o.prefetch, "prefetch", 1000, "prefetch of the raw consumer")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

// side is how one side does a stage with what is there; it returns when all is
// done.
type side func(ctx context.Context, e *env) error

// stage is what both sides do.
type stage struct {
	fill  func(*env, context.Context) error
	check func(*env, context.Context) error
	sides map[string]side
}

var stages = map[string]stage{
	"relay":   {(*env).fillTable, (*env).checkSent, map[string]side{"ours": relayOurs, "raw": relayRaw}},
	"consume": {(*env).fillQueue, (*env).checkHandled, map[string]side{"ours": consumeOurs, "raw": consumeRaw}},
}

func run(ctx context.Context, o options) (err error) {
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // a profile that is cut off shows when it is read
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	e, err := newEnv(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close(context.WithoutCancel(ctx))) }()
	for _, name := range strings.Split(o.stages, ",") {
		st, ok := stages[name]
		if !ok {
			return fmt.Errorf("there is no stage %q; give relay, consume or both", name)
		}
		if err := st.measure(ctx, e, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// sample is the results of the runs of one side.
type sample struct {
	rate []float64 // messages a second
	cpu  []float64 // microseconds of this process a message
}

// measure lets the sides take turns, and prints the medians.
func (st stage) measure(ctx context.Context, e *env, name string) error {
	sides := strings.Split(e.o.sides, ",")
	samples := make(map[string]*sample)
	for range e.o.runs {
		for _, who := range sides {
			do, ok := st.sides[who]
			if !ok {
				return fmt.Errorf("there is no side %q; give ours, raw or both", who)
			}
			if samples[who] == nil {
				samples[who] = new(sample)
			}
			if err := st.once(ctx, e, do, samples[who]); err != nil {
				return fmt.Errorf("%s: %w", who, err)
			}
		}
	}
	for _, who := range sides {
		s := samples[who]
		fmt.Printf("%-8s %-8s %-5s %6.0f messages/s (median of %d; %.0f to %.0f), client %3.0f µs a message\n",
			name, e.o.queue, who, median(s.rate), len(s.rate), slices.Min(s.rate), slices.Max(s.rate), median(s.cpu))
	}
	if ours, raw := samples["ours"], samples["raw"]; ours != nil && raw != nil {
		ratios := make([]float64, len(raw.rate))
		for i := range ratios {
			ratios[i] = ours.rate[i] / raw.rate[i]
		}
		fmt.Printf("%-8s %-8s ratio %.2f of the medians; by pairs of neighbours %.2f (%.2f to %.2f)\n",
			name, e.o.queue, median(ours.rate)/median(raw.rate), median(ratios), slices.Min(ratios), slices.Max(ratios))
	}
	return nil
}

// once measures one run of one side, connecting included.
func (st stage) once(ctx context.Context, e *env, do side, s *sample) error {
	if err := e.renew(ctx); err != nil {
		return err
	}
	if err := st.fill(e, ctx); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	if err := e.settleDown(ctx); err != nil {
		return err
	}
	e.took = 0
	begun, cpu := time.Now(), processorTime()
	e.finished = func() { e.took, cpu = time.Since(begun), processorTime()-cpu }
	if err := do(ctx, e); err != nil {
		return err
	}
	if err := st.check(e, ctx); err != nil {
		return err
	}
	s.rate = append(s.rate, float64(e.o.rows)/e.took.Seconds())
	s.cpu = append(s.cpu, float64(cpu.Microseconds())/float64(e.o.rows))
	return nil
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
