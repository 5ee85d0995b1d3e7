package subscribe_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/capbus/gocap/internal/backoff"
	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a consumer on the memory adapters, with a simple loop that finds due
// rows; in a bus, package processor does that.
type rig struct {
	t        *testing.T
	cfg      subscribe.ConsumerConfig
	store    *memstore.Store
	queue    *memqueue.Queue
	keeper   *rows.Keeper
	consumer *subscribe.Consumer

	mu     sync.Mutex
	failed []failed
}

type failed struct {
	rec *storage.Record
	m   *transport.Message
}

// shared is what a rig takes from another one; the zero value is its own.
type shared struct {
	store *memstore.Store
	queue *memqueue.Queue
}

// newRig makes a consumer that does not run yet. change may change its
// configuration; nil: nothing.
func newRig(t *testing.T, with shared, change func(*subscribe.ConsumerConfig), subs ...subscribe.Subscription) *rig {
	t.Helper()
	r := &rig{t: t, store: with.store, queue: with.queue}
	if r.store == nil {
		r.store = memstore.New(memstore.Config{})
	}
	if r.queue == nil {
		r.queue = memqueue.New(memqueue.Config{})
	}
	r.cfg = subscribe.ConsumerConfig{
		Storage: r.store, Transport: r.queue, Codec: transport.JSON, Subscriptions: subs,
		Log:     &quiet.Logger{Log: slog.New(slog.DiscardHandler)},
		Version: "v1", DefaultGroup: "test",
		Policy:   rows.Policy{Count: 50, Interval: time.Minute, Immediate: 2, KeepFailed: 24 * time.Hour, OweCallback: true},
		Callback: r.callback,
		KeepDone: 24 * time.Hour, Receivers: 1, Concurrency: 4, BatchSize: 100,
		UnhandledAfter: time.Hour, AdoptInterval: 5 * time.Second, MaxBytes: 8 << 20,
	}
	if change != nil {
		change(&r.cfg)
	}
	r.keeper = rows.NewKeeper(r.cfg.Storage, storage.Instance{Box: storage.Inbox, Version: r.cfg.Version, Lease: 15 * time.Second}, r.cfg.Log.Log)
	r.cfg.Keeper = r.keeper
	c, err := subscribe.NewConsumer(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.consumer = c
	return r
}

func (r *rig) callback(_ context.Context, rec *storage.Record, m *transport.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, failed{rec, m})
}

// callbacks returns the callbacks made so far.
func (r *rig) callbacks() []failed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.failed)
}

// running makes a consumer that runs until the test ends.
func running(t *testing.T, change func(*subscribe.ConsumerConfig), subs ...subscribe.Subscription) *rig {
	t.Helper()
	return newRig(t, shared{}, change, subs...).start()
}

func (r *rig) start() *rig {
	r.t.Helper()
	stop := r.startUntil()
	r.t.Cleanup(stop)
	return r
}

// startUntil starts the consumer; stop stops it, gives handlers no time, and
// waits.
func (r *rig) startUntil() (stop func()) {
	r.t.Helper()
	if dc, ok := r.cfg.Transport.(transport.Declarer); ok {
		for _, src := range r.consumer.Sources() {
			if err := dc.Declare(r.t.Context(), src); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if err := r.keeper.Join(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	take, endTake := context.WithCancel(context.Background())
	work, endWork := context.WithCancelCause(context.Background())
	keep, endKeep := context.WithCancel(context.Background())
	var loops, keeping sync.WaitGroup
	keeping.Go(func() { r.keeper.Run(keep) })
	loops.Go(func() { r.consumer.Run(take, take, work, keep) })
	loops.Go(func() { r.look(take) })
	return func() {
		endTake()
		endWork(errStopping)
		loops.Wait()
		endKeep()
		keeping.Wait()
		if err := r.keeper.Leave(context.Background()); err != nil {
			r.t.Error(err)
		}
	}
}

var errStopping = errors.New("stopping")

// look finds due rows every 100 ms.
func (r *rig) look(ctx context.Context) {
	for backoff.Sleep(ctx, 100*time.Millisecond) {
		t, err := r.keeper.Wait(ctx)
		if err != nil {
			return
		}
		for _, find := range []func(storage.Query) ([]*storage.Record, error){
			func(q storage.Query) ([]*storage.Record, error) { recs, _, err := t.Due(ctx, q); return recs, err },
			func(q storage.Query) ([]*storage.Record, error) { return t.TakeOver(ctx, q) },
		} {
			lanes := r.consumer.Room()
			if len(lanes) == 0 {
				continue
			}
			look := r.consumer.Hand().Begin()
			recs, err := find(storage.Query{Lanes: lanes})
			if err != nil && ctx.Err() == nil && !errors.Is(err, storage.ErrLost) {
				r.t.Errorf("due rows: %v", err)
			}
			recs = slices.DeleteFunc(recs, func(rec *storage.Record) bool { return !look.Take(rec.ID) })
			r.consumer.Admit(t, recs) //nolint:contextcheck // what it starts outlives the look
			look.End()
		}
	}
}

// send brings a message as another bus would: it is in the inbox when send
// returns.
func (r *rig) send(topic, id, body string) {
	r.t.Helper()
	m := &transport.Message{ID: id, Topic: topic, Body: []byte(body), Headers: map[string]string{transport.HeaderID: id, transport.HeaderTopic: topic}}
	if err := r.queue.Send(r.t.Context(), []*transport.Message{m})[0]; err != nil {
		r.t.Fatalf("send %s: %v", id, err)
	}
}

// records returns the inbox.
func (r *rig) records() []*storage.Record { return r.store.Records(storage.Inbox) }

// record returns the only row of the inbox.
func (r *rig) record() *storage.Record {
	r.t.Helper()
	recs := r.records()
	if len(recs) != 1 {
		r.t.Fatalf("%d rows in the inbox, want 1", len(recs))
	}
	return recs[0]
}

// elapse lets the time of a synctest bubble pass, and waits until everything
// else in it waits.
func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// pause waits, in a synctest bubble.
func pause(d time.Duration) { <-time.After(d) }

// tally counts what was handled, by what.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *tally) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	c.seen[what]++
}

func (c *tally) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[what]
}

func (c *tally) kinds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

// handler counts payloads under a name.
func (c *tally) handler(name string) func(context.Context, string) error {
	return func(_ context.Context, s string) error {
		c.add(name + s)
		return nil
	}
}
