package cap_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a bus on the memory adapters.
type rig struct {
	*cap.Bus

	store *memstore.Store
	queue *memqueue.Queue
}

// newRig makes a bus that does not run yet. What opts leave out is of its own;
// nothing goes through the default registry or bus.
func newRig(t *testing.T, opts cap.Options, subs ...subscribe.Subscription) *rig {
	t.Helper()
	r := &rig{store: memstore.New(memstore.Config{}), queue: memqueue.New(memqueue.Config{})}
	r.queue.Record(10000)
	return r.again(t, opts, subs...)
}

// again makes another bus on the same storage and transport.
func (r *rig) again(t *testing.T, opts cap.Options, subs ...subscribe.Subscription) *rig {
	t.Helper()
	if opts.Storage == nil {
		opts.Storage = r.store
	}
	if opts.Transport == nil {
		opts.Transport = r.queue
	}
	if opts.Registry == nil {
		opts.Registry = &subscribe.Registry{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.DefaultGroupName == "" {
		opts.DefaultGroupName = "test"
	}
	opts.Subscriptions = append(slices.Clone(opts.Subscriptions), subs...)
	bus, err := cap.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{Bus: bus, store: r.store, queue: r.queue}
}

// start starts the bus; it stops, cleanly, at the end of the test.
func (r *rig) start(t *testing.T) *rig {
	t.Helper()
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return r
}

func running(t *testing.T, opts cap.Options, subs ...subscribe.Subscription) *rig {
	t.Helper()
	return newRig(t, opts, subs...).start(t)
}

// begin starts a transaction of the storage.
func (r *rig) begin(ctx context.Context, t *testing.T) storage.Tx {
	t.Helper()
	tx, err := r.store.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// sent returns the bodies of what reached the queue, sorted.
func (r *rig) sent() []string {
	var bodies []string
	for _, m := range r.queue.Sent() {
		bodies = append(bodies, string(m.Body))
	}
	slices.Sort(bodies)
	return bodies
}

// row returns the only record of a box.
func (r *rig) row(t *testing.T, box storage.Box) *storage.Record {
	t.Helper()
	recs := r.store.Records(box)
	if len(recs) != 1 {
		t.Fatalf("%d rows %s, want 1", len(recs), box)
	}
	return recs[0]
}

// journal remembers what was handled, and lets a test wait for it.
type journal struct {
	mu      sync.Mutex
	entries []string
	more    chan struct{} // closed at every entry
}

func newJournal() *journal { return &journal{more: make(chan struct{})} }

func (j *journal) add(entry string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry)
	close(j.more)
	j.more = make(chan struct{})
}

// handler adds the payload of every message.
func (j *journal) handler(_ context.Context, s string) error {
	j.add(s)
	return nil
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

func (j *journal) sorted() []string {
	all := j.all()
	slices.Sort(all)
	return all
}

// wait waits for n entries.
func (j *journal) wait(t *testing.T, n int) []string {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		j.mu.Lock()
		entries, more := slices.Clone(j.entries), j.more
		j.mu.Unlock()
		if len(entries) >= n {
			return entries
		}
		select {
		case <-more:
		case <-deadline:
			t.Fatalf("only %d of %d entries after a minute: %v", len(entries), n, entries)
		}
	}
}

// pause waits, in a synctest bubble.
func pause(d time.Duration) { <-time.After(d) }

// elapse is as pause, for the goroutine of the test: it then waits until
// everything else in the bubble does, and sees what that has written.
func elapse(d time.Duration) {
	pause(d)
	synctest.Wait()
}

func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%03d", prefix, i)
	}
	return all
}

// blocking is as handler, but waits for release before.
func (j *journal) blocking(release <-chan struct{}) func(context.Context, string) error {
	return func(ctx context.Context, s string) error {
		<-release
		return j.handler(ctx, s)
	}
}

func quietLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }
