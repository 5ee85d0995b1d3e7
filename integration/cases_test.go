package integration

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// The tests named after a case (TestC005…) show the right result of one fault
// that users of other systems have met. What they share is here.

// patience bounds every wait for something that is to happen.
const patience = 30 * time.Second

// eventually waits until cond holds.
func eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !cond(); <-tick.C {
		if time.Now().After(end) {
			tb.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// journal notes what handlers got.
type journal struct {
	mu   sync.Mutex
	seen []string
}

func (j *journal) add(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen = append(j.seen, what)
}

// handle is a handler that succeeds.
func (j *journal) handle(_ context.Context, what string) error {
	j.add(what)
	return nil
}

func (j *journal) len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.seen)
}

func (j *journal) sorted() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Sorted(slices.Values(j.seen))
}

func (j *journal) count(what string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.seen {
		if s == what {
			n++
		}
	}
	return n
}

// wait waits until n handlers have run.
func (j *journal) wait(tb testing.TB, n int) {
	tb.Helper()
	eventually(tb, "enough is handled", func() bool { return j.len() >= n })
}

// exactly compares what was handled with what should be, each once.
func (j *journal) exactly(tb testing.TB, want []string) {
	tb.Helper()
	got, want := j.sorted(), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		tb.Errorf("handled %d, want %d, each once; first difference near %q", len(got), len(want), difference(got, want))
	}
}

// gauge measures how many runs of one key are under way at once.
type gauge struct {
	mu   sync.Mutex
	now  map[string]int
	most int
}

func (g *gauge) enter(key string) (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now == nil {
		g.now = map[string]int{}
	}
	g.now[key]++
	g.most = max(g.most, g.now[key])
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.now[key]--
	}
}

func (g *gauge) peak() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

func (g *gauge) running(key string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now[key]
}

// inGroup is a subscription of the group "g".
func inGroup[T any](topic string, fn func(context.Context, T) error, opts ...subscribe.Option) subscribe.Subscription {
	return subscribe.To(topic, fn, append([]subscribe.Option{subscribe.Group("g")}, opts...)...)
}

// serving sets the subscriptions, and a lease that is not lost on a machine with
// much to do: these tests count the runs of handlers.
func serving(subs ...subscribe.Subscription) func(*cap.Options) {
	return func(o *cap.Options) { o.Subscriptions, o.FallbackWindow = subs, 20*time.Second }
}

// leased is a lease that ends soon, where that is the subject.
func leased(o *cap.Options) { o.FallbackWindow = window }

// over lets services share a broker.
func over(q *memqueue.Queue) func(*cap.Options) {
	return func(o *cap.Options) { o.Transport = q }
}

func file(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "shop.db")
}

// opened is a store that is closed when the test ends.
func opened(tb testing.TB, path string, change ...func(*sqlite.Config)) *gormstore.Store {
	tb.Helper()
	cfg := sqlite.Config{Synchronous: "NORMAL", GORM: &gorm.Config{Logger: logger.Discard}}
	for _, f := range change {
		f(&cfg)
	}
	store, err := sqlite.Open(path, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	})
	return store
}

// made is a bus with the short settings of these tests.
func made(tb testing.TB, s storage.Storage, tr transport.Transport, change ...func(*cap.Options)) *cap.Bus {
	tb.Helper()
	bus, err := cap.New(short(s, tr, change...))
	must(tb, err)
	return bus
}

func short(s storage.Storage, tr transport.Transport, change ...func(*cap.Options)) cap.Options {
	opts := cap.Options{
		Storage: s, Transport: tr, Registry: &subscribe.Registry{},
		Logger:         slog.New(slog.NewTextHandler(logs(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		FallbackWindow: window, PollInterval: 100 * time.Millisecond, FailedRetryInterval: 100 * time.Millisecond,
		ImmediateRetries: 1, Concurrency: 4,
	}
	for _, f := range change {
		f(&opts)
	}
	return opts
}

// begun starts a bus, which stops when the test ends.
func begun(tb testing.TB, bus *cap.Bus) *cap.Bus {
	tb.Helper()
	if err := bus.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := bus.Stop(context.WithoutCancel(tb.Context())); err != nil {
			tb.Error(err)
		}
	})
	return bus
}

// must stops the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// crowd runs f(0) to f(n-1), workers of them at once.
func crowd(n, workers int, f func(i int)) {
	todo := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range todo {
				f(i)
			}
		})
	}
	for i := range n {
		todo <- i
	}
	close(todo)
	all.Wait()
}
