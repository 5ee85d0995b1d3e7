package subscribe_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
)

// bySteps is a stop as the bus makes it.
type bySteps struct {
	endTake, endWork, endLast func()
	done                      chan struct{}
}

// startBySteps runs a consumer whose stop the test makes.
func (r *rig) startBySteps() *bySteps {
	r.t.Helper()
	if err := r.keeper.Join(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	take, endTake := context.WithCancel(context.Background())
	work, endWork := context.WithCancel(context.Background())
	last, endLast := context.WithCancel(context.Background())
	b := &bySteps{endTake: endTake, endWork: endWork, endLast: endLast, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		r.consumer.Run(take, take, work, last)
	}()
	r.t.Cleanup(func() {
		endTake()
		endWork()
		endLast()
		<-b.done
		if err := r.keeper.Leave(context.Background()); err != nil {
			r.t.Error(err)
		}
	})
	return b
}

func (b *bySteps) isDone() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

func TestTheBrokerDeliversNoMoreThanTheWorkersNeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		var now, most atomic.Int32
		handler := func(context.Context, string) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			pause(time.Second)
			now.Add(-1)
			return nil
		}
		running(t, onBroker(b), subscribe.To("t", handler, quick()))
		for i := range 100 {
			b.send("t", fmt.Sprint(i), `""`)
		}
		elapse(25*time.Second + time.Millisecond)
		acked, _ := b.ended()
		if len(acked) != 100 || most.Load() != 4 || b.most != 8 {
			t.Errorf("%d acked, %d handlers at once, %d deliveries at once", len(acked), most.Load(), b.most)
		}
	})
}

func TestConcurrencyHoldsWithoutAnInbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		var now, most atomic.Int32
		handler := func(context.Context, string) error {
			most.Store(max(most.Load(), now.Add(1)))
			pause(time.Second)
			now.Add(-1)
			return nil
		}
		running(t, onBroker(b), subscribe.To("t", handler, quick(), subscribe.Concurrency(1)))
		for i := range 5 {
			b.send("t", fmt.Sprint(i), `""`)
		}
		elapse(5*time.Second + time.Millisecond)
		if acked, _ := b.ended(); len(acked) != 5 || most.Load() != 1 {
			t.Errorf("%d acked, %d at once", len(acked), most.Load())
		}
	})
}

// A handler that runs when the stop begins is acked; what waits behind it goes
// back at once, and is no attempt.
func TestStopAcksWhatRunsAndGivesTheRestBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		r := newRig(t, shared{}, onBroker(b), subscribe.To("t", func(context.Context, string) error { pause(10 * time.Second); return nil }, quick()))
		s := r.startBySteps()
		for i := range 20 {
			b.send("t", fmt.Sprint(i), `""`)
		}
		elapse(time.Second)
		s.endTake()
		elapse(5 * time.Second)
		if acked, _ := b.ended(); len(acked) != 0 || s.isDone() {
			t.Errorf("acked %v, done %t while handlers run", acked, s.isDone())
		}
		elapse(5 * time.Second)
		acked, parked := b.ended()
		if len(acked) != 4 || len(parked) != 0 || !s.isDone() || b.waiting() != 16 {
			t.Errorf("%d acked, %d parked, %d wait with the broker, done %t", len(acked), len(parked), b.waiting(), s.isDone())
		}
		if b.failures() != 0 {
			t.Errorf("%d failed attempts", b.failures())
		}
	})
}

func TestWhatAStopHasCutIsNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		r := newRig(t, shared{}, onBroker(b), subscribe.To("t", func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }, subscribe.BrokerRetry(1, time.Minute)))
		s := r.startBySteps()
		b.send("t", "1", `""`)
		elapse(time.Second)
		s.endTake()
		elapse(time.Second)
		s.endWork()
		elapse(2 * time.Second)
		if _, parked := b.ended(); len(parked) != 0 || b.waiting() != 1 || !s.isDone() || len(r.callbacks()) != 0 {
			t.Errorf("parked %v, %d wait with the broker, done %t", parked, b.waiting(), s.isDone())
		}
	})
}

// A handler that never returns does not hold the message back for ever.
func TestAStopLeavesBehindWhoDoesNotReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		release := make(chan struct{})
		r := newRig(t, shared{}, onBroker(b), subscribe.To("t", func(context.Context, string) error { <-release; return nil }, quick()))
		s := r.startBySteps()
		b.send("t", "1", `""`)
		elapse(time.Second)
		s.endTake()
		s.endWork()
		elapse(time.Second)
		if b.waiting() != 0 {
			t.Error("given back while its answer would count")
		}
		s.endLast()
		elapse(time.Second)
		if b.waiting() != 1 || s.isDone() {
			t.Errorf("%d wait with the broker, done %t", b.waiting(), s.isDone())
		}
		close(release)
		elapse(time.Second)
		if acked, _ := b.ended(); len(acked) != 0 || !s.isDone() {
			t.Errorf("acked %v, done %t", acked, s.isDone())
		}
	})
}

func TestALostReceiverEndsItsHandlersAndCountsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		var mu sync.Mutex
		var causes []error
		var attempts []int
		running(t, onBroker(b), subscribe.To("t", func(ctx context.Context, _ string) error {
			info, _ := subscribe.InfoFromContext(ctx)
			mu.Lock()
			attempts = append(attempts, info.Attempt)
			first := len(attempts) == 1
			mu.Unlock()
			if !first {
				return nil
			}
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return ctx.Err()
		}, subscribe.BrokerRetry(1, time.Minute)))
		b.send("t", "1", `""`)
		elapse(time.Second)
		b.cut()
		elapse(10 * time.Second)
		if acked, parked := b.ended(); len(acked) != 1 || len(parked) != 0 || fmt.Sprint(attempts) != "[1 1]" {
			t.Errorf("acked %v, parked %v, attempts %v", acked, parked, attempts)
		}
		if len(causes) != 1 || causes[0].Error() != "the receiver was lost: the broker delivers the message again" {
			t.Errorf("causes %v", causes)
		}
	})
}

func TestPauseWithoutAnInbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		var runs atomic.Int32
		r := running(t, onBroker(b), subscribe.To("t", func(context.Context, string) error {
			runs.Add(1)
			pause(time.Minute)
			return nil
		}, quick()))
		for i := range 10 {
			b.send("t", fmt.Sprint(i), `""`)
		}
		elapse(time.Second)
		if err := r.consumer.Pause("test"); err != nil {
			t.Fatal(err)
		}
		elapse(30 * time.Second)
		if s := r.consumer.States()[0]; s.Paused.IsZero() || s.Running != 4 || s.Run.MessageID == "" {
			t.Errorf("state %+v", s)
		}
		elapse(10 * time.Minute)
		acked, _ := b.ended()
		if s := r.consumer.States()[0]; len(acked) != 4 || runs.Load() != 4 || b.waiting() != 6 || s.Receivers != 0 || s.LastError != "" {
			t.Errorf("%d acked of %d runs, %d with the broker, state %+v", len(acked), runs.Load(), b.waiting(), s)
		}
		if err := r.consumer.Resume("test"); err != nil {
			t.Fatal(err)
		}
		elapse(10 * time.Minute)
		if acked, _ := b.ended(); len(acked) != 10 || b.failures() != 0 {
			t.Errorf("%d acked, %d failures", len(acked), b.failures())
		}
	})
}

// A pause that ends while handlers run need not wait for them.
func TestResumeWhileHandlersRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		var runs atomic.Int32
		r := running(t, onBroker(b), subscribe.To("t", func(context.Context, string) error {
			if runs.Add(1) == 1 {
				pause(24 * time.Hour)
			}
			return nil
		}, quick()))
		b.send("t", "long", `""`)
		elapse(time.Second)
		for i := range 3 {
			if err := errors.Join(r.consumer.Pause("test"), r.consumer.Resume("test")); err != nil {
				t.Fatal(err)
			}
			if err := r.consumer.Pause("test"); err != nil {
				t.Fatal(err)
			}
			elapse(time.Second)
			b.send("t", fmt.Sprint(i), `""`)
			elapse(time.Second)
			if n := runs.Load(); int(n) != 1+i {
				t.Errorf("%d runs in pause %d", n, i)
			}
			if err := r.consumer.Resume("test"); err != nil {
				t.Fatal(err)
			}
			elapse(2 * time.Second)
			if acked, _ := b.ended(); len(acked) != 1+i {
				t.Errorf("%d acked after pause %d", len(acked), i)
			}
		}
	})
}

// Rows of the time when the group had an inbox are not forgotten.
func TestRowsOfTheInboxAreHandledByAGroupThatHasNoneNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old := newRig(t, shared{}, nil, subscribe.To("t", func(context.Context, string) error { return errors.New("no") }))
		stop := old.startUntil()
		old.send("t", "1", `""`)
		elapse(time.Second)
		stop()
		b := newRetryBroker()
		r := newRig(t, shared{store: old.store}, onBroker(b), subscribe.To("t", func(context.Context, string) error { return nil }, quick())).start()
		elapse(10 * time.Minute)
		if rec := r.record(); rec.Status != storage.Succeeded {
			t.Errorf("row %+v", rec)
		}
	})
}
