package cap_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
)

func TestNoTxIsCommittedWhenPublishReturns(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{})
	if err := r.Publish(t.Context(), cap.NoTx, "t", 1); err != nil {
		t.Fatal(err)
	}
	if rec := r.row(t, storage.Outbox); rec.Topic != "t" || rec.Status != storage.Scheduled {
		t.Errorf("row %s is %v", rec.Topic, rec.Status)
	}
}

func TestPublishDoesNotNeedTheBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := running(t, cap.Options{FailedRetryCount: 2}, subscribe.To("t", j.handler))
		for round := range 3 {
			r.queue.Disconnect()
			for i := range 5 {
				if err := r.Publish(t.Context(), cap.NoTx, "t", fmt.Sprint(round, i)); err != nil {
					t.Fatalf("Publish while the broker is away: %v", err)
				}
				elapse(time.Second)
			}
			elapse(10 * time.Minute) // longer than all attempts together
			if got := len(j.all()); got != round*5 {
				t.Fatalf("%d handled while the broker is away, want %d", got, round*5)
			}
			r.queue.Reconnect()
			elapse(5 * time.Second)
			if got := len(j.all()); got != round*5+5 {
				t.Fatalf("%d handled 5 s after the broker is back, want %d", got, round*5+5)
			}
		}
		for _, rec := range r.store.Records(storage.Outbox) {
			if rec.Status != storage.Succeeded || rec.Retries != 0 {
				t.Errorf("row %s: %v, %d attempts counted; an outage counts none", rec.Body, rec.Status, rec.Retries)
			}
		}
	})
}

func TestABrokerThatIsAwayDoesNotFailTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := newRig(t, cap.Options{}, subscribe.To("t", j.handler))
		r.queue.Disconnect()
		r.start(t)
		if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		r.queue.Reconnect()
		j.wait(t, 1)
	})
}

func TestPublishBeforeStartAndAfterStopIsSentByTheNextStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := newRig(t, cap.Options{}, subscribe.To("t", j.handler))
		if err := r.Publish(t.Context(), cap.NoTx, "t", "before Start"); err != nil {
			t.Fatal(err)
		}
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		j.wait(t, 1)
		open := r.begin(t.Context(), t)
		if err := r.Publish(t.Context(), open, "t", "committed after Stop"); err != nil {
			t.Fatal(err)
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := open.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := r.Publish(t.Context(), cap.NoTx, "t", "after Stop"); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		if got := j.all(); len(got) != 1 {
			t.Fatalf("a stopped bus handled %v", got)
		}
		begun := time.Now()
		next := r.again(t, cap.Options{}, subscribe.To("t", j.handler)).start(t)
		j.wait(t, 3)
		if d := time.Since(begun); d > time.Second {
			t.Errorf("the next bus took %s", d)
		}
		elapse(time.Minute)
		if got := j.sorted(); !slices.Equal(got, []string{"after Stop", "before Start", "committed after Stop"}) {
			t.Errorf("handled %v", got)
		}
		_ = next
	})
}

// Case C167: Publish while Stop runs, and after it.
func TestPublishWhileStoppingLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := newRig(t, cap.Options{}, subscribe.To("t", j.handler))
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var want []string
		var all sync.WaitGroup
		for _, name := range names("p", 50) {
			all.Go(func() {
				for i := range 40 {
					m := fmt.Sprint(name, "/", i)
					err := r.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error {
						pause(3 * time.Millisecond)
						return r.Publish(ctx, tx, "t", m)
					})
					if err == nil {
						mu.Lock()
						want = append(want, m)
						mu.Unlock()
					}
				}
			})
		}
		elapse(50 * time.Millisecond)
		if err := r.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		all.Wait()
		if len(want) != 2000 {
			t.Errorf("%d of 2000 published; a stopped bus takes them all", len(want))
		}
		r.start(t)
		elapse(17 * time.Second) // a fallback window and 2 s
		slices.Sort(want)
		got := slices.Compact(j.sorted())
		if !slices.Equal(got, want) {
			t.Errorf("%d of %d messages handled", len(got), len(want))
		}
		if len(j.all()) != len(want) {
			t.Errorf("%d runs of the handler for %d messages", len(j.all()), len(want))
		}
	})
}

func TestWithoutATransportABusPublishesAndDoesNotStart(t *testing.T) {
	t.Parallel()
	store := newRig(t, cap.Options{}).store
	bus, err := cap.New(cap.Options{Storage: store, Registry: &subscribe.Registry{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Publish(t.Context(), cap.NoTx, "t", 1); err != nil {
		t.Error(err)
	}
	if err := bus.Start(t.Context()); err == nil || err.Error() != "cap: start: Options.Transport is required to start a bus; without one it can only publish" {
		t.Errorf("Start: %v", err)
	}
	if err := bus.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWakeFindsWhatTheBusDoesNotSee(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := running(t, cap.Options{PollInterval: 10 * time.Minute, FallbackWindow: time.Hour}, subscribe.To("t", j.handler))
		elapse(time.Second)
		// Another process wrote it.
		other := r.again(t, cap.Options{})
		if err := other.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		if got := j.all(); len(got) > 0 {
			t.Fatalf("handled %v before the scan", got)
		}
		r.Wake()
		elapse(100 * time.Millisecond)
		if got := j.all(); len(got) != 1 {
			t.Errorf("handled %v after Wake, want the message", got)
		}
		other.Wake() // of a bus that does not run: nothing
	})
}

// Nothing may be sent before all groups of the bus are there: it would reach the
// one and miss the other.
func TestEveryGroupGetsWhatWasPublishedWhileTheBrokerWasAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var subs []subscribe.Subscription
		var js []*journal
		for _, group := range names("g", 20) {
			j := newJournal()
			js = append(js, j)
			subs = append(subs, subscribe.To("t", j.handler, subscribe.Group(group)))
		}
		r := newRig(t, cap.Options{}, subs...)
		r.queue.Disconnect()
		r.start(t)
		for range 10 {
			if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
				t.Fatal(err)
			}
		}
		elapse(time.Minute)
		r.queue.Reconnect()
		elapse(10 * time.Second)
		for i, j := range js {
			if n := len(j.all()); n != 10 {
				t.Errorf("group %d got %d of 10 messages", i, n)
			}
		}
	})
}

func TestVersionsThatShareTablesDoNotSendEachOthersRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		sub := subscribe.To("t", j.handler)
		v1 := newRig(t, cap.Options{}, sub)
		if err := v1.Publish(t.Context(), cap.NoTx, "t", "of v1"); err != nil {
			t.Fatal(err)
		}
		v2 := v1.again(t, cap.Options{Version: "v2"}, sub)
		if err := v2.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		if err := v2.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute) // its queue is gone
		if got := v1.sent(); len(got) > 0 {
			t.Fatalf("v2 sent %v", got)
		}
		v1.start(t)
		elapse(time.Second)
		if got := j.all(); len(got) != 1 {
			t.Errorf("handled %v, want the message once", got)
		}
	})
}
