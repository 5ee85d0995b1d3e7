package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC028SlowTopic: a topic that hangs in the transport holds up no other one,
// of no instance, and no transaction is open meanwhile.
func TestC028SlowTopic(t *testing.T) {
	t.Parallel()
	path, q := file(t), memqueue.New(memqueue.Config{})
	var slow, fast journal
	subs := serving(inGroup("slow", slow.handle), inGroup("fast", fast.handle))
	one, two := start(t, path, subs, over(q)), start(t, path, subs, over(q))
	hang := make(chan struct{})
	release := sync.OnceFunc(func() { close(hang) })
	t.Cleanup(release) // before the services stop
	var hanging atomic.Int32
	q.SetFaults(memqueue.Faults{Refuse: func(m *transport.Message) error {
		if m.Topic == "slow" {
			hanging.Add(1)
			<-hang
		}
		return nil
	}})
	const slows, fasts = 5, 250 // of each service
	for _, s := range []*service{one, two} {
		for i := range slows {
			must(t, s.bus.Publish(t.Context(), cap.NoTx, "slow", fmt.Sprint(i)))
		}
	}
	eventually(t, "sends of both hang", func() bool { return hanging.Load() >= 2 })
	for i, s := range []*service{one, two} {
		must(t, s.bus.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error {
			for n := range fasts {
				if err := s.bus.Publish(ctx, tx, "fast", fmt.Sprint(i, "-", n)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	fast.wait(t, 2*fasts)
	if slow.len() > 0 {
		t.Errorf("%d of the hanging topic arrived", slow.len())
	}
	// Both services can have the only write lock: nobody holds it over a send.
	for _, s := range []*service{one, two} {
		must(t, s.store.DB().Exec("INSERT INTO orders VALUES (?)", cap.NewID()).Error)
	}
	release()
	slow.wait(t, 2*slows)
	settled(t, one.store.DB(), window)
	if slow.len() != 2*slows || fast.len() != 2*fasts {
		t.Errorf("handled %d and %d, want %d and %d", slow.len(), fast.len(), 2*slows, 2*fasts)
	}
}

// TestC094Oversize: a message that the broker will never take ends failed with
// its reason; those behind it on the same and another topic go.
func TestC094Oversize(t *testing.T) {
	t.Parallel()
	var j journal
	failed := make(chan cap.FailedInfo, 10)
	s := start(t, file(t), serving(inGroup("#", j.handle)), func(o *cap.Options) {
		o.FailedRetryCount = 5
		o.FailedThresholdCallback = func(_ context.Context, info cap.FailedInfo) { failed <- info }
	})
	const limit = 1 << 20
	var tries [2]atomic.Int32
	s.queue.SetFaults(memqueue.Faults{Refuse: func(m *transport.Message) error {
		switch {
		case len(m.Body) <= limit:
			return nil
		case m.Topic == "big.known":
			tries[0].Add(1)
			return fmt.Errorf("%w: %w: message is larger than max_message", transport.ErrRejected, transport.ErrPermanent)
		}
		tries[1].Add(1)
		return fmt.Errorf("%w: message is larger than max_message", transport.ErrRejected)
	}})
	big := strings.Repeat("x", 2*limit)
	must(t, s.bus.Publish(t.Context(), cap.NoTx, "big.known", big))
	must(t, s.bus.Publish(t.Context(), cap.NoTx, "big", big))
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprint(i))
		must(t, s.bus.Publish(t.Context(), cap.NoTx, []string{"big", "small"}[i%2], fmt.Sprint(i)))
	}
	j.wait(t, len(want))
	settled(t, s.store.DB(), window)
	j.exactly(t, want)
	if a, b := tries[0].Load(), tries[1].Load(); a != 1 || b != 5 {
		t.Errorf("tried %d and %d times, want once where the refusal is permanent, else 5 times", a, b)
	}
	got := column(t, s.store.DB(), "SELECT name||' '||status||' '||last_error FROM cap_published WHERE status <> 2")
	for _, line := range got {
		if !strings.Contains(line, " 3 ") || !strings.Contains(line, "larger than max_message") {
			t.Errorf("row %q", line)
		}
	}
	if len(got) != 2 || len(failed) != 2 {
		t.Errorf("%d failed rows, %d callbacks, want 2 of each", len(got), len(failed))
	}
}

// TestC167PublishWhileStopping: what is committed while the bus stops, or after
// it, is handled after the next start, without waiting for a lease to run out.
func TestC167PublishWhileStopping(t *testing.T) {
	t.Parallel()
	path := file(t)
	var j journal
	s, err := newService(t.Context(), path, serving(inGroup("t", j.handle)))
	must(t, err)
	must(t, s.bus.Start(t.Context()))
	var mu sync.Mutex
	var want []string
	stopped := make(chan error, 1)
	crowd(50, 50, func(i int) {
		if i == 25 {
			go func() { stopped <- s.bus.Stop(context.WithoutCancel(t.Context())) }()
		}
		for n := range 4 {
			id := fmt.Sprintf("%d-%d", i, n)
			err := s.store.DB().Transaction(func(tx *gorm.DB) error { return s.bus.Publish(t.Context(), tx, "t", id) })
			if err == nil {
				mu.Lock()
				want = append(want, id)
				mu.Unlock()
			}
		}
	})
	must(t, <-stopped)
	must(t, s.bus.Publish(t.Context(), cap.NoTx, "t", "after the stop"))
	want = append(want, "after the stop")
	must(t, s.store.Close())
	if j.len() >= len(want) {
		t.Fatal("nothing was left for the next start")
	}
	next := start(t, path, serving(inGroup("t", j.handle)), func(o *cap.Options) { o.FallbackWindow = time.Minute })
	j.wait(t, len(want)) // patience is half a window
	settled(t, next.store.DB(), window)
	j.exactly(t, want)
	if bad := column(t, next.store.DB(), "SELECT name FROM cap_published WHERE retries > 0 OR takeovers > 0"); len(bad) > 0 {
		t.Errorf("a clean stop was counted in %d rows", len(bad))
	}
}
