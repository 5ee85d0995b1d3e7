package cap_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap"
	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/operator"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// operates returns the operator of the bus.
func (r *rig) operates(t *testing.T) *operator.Operator {
	t.Helper()
	o, err := r.Operator()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// only returns the only message of a box that is in the state.
func only(t *testing.T, o *operator.Operator, box operator.Box, state operator.State) *operator.Message {
	t.Helper()
	l, err := o.List(t.Context(), operator.Filter{Box: box, States: []operator.State{state}}, operator.Page{})
	if err != nil || len(l.Messages) != 1 {
		t.Fatalf("%d messages %s are %s, %v; want one", len(l.Messages), box, state, err)
	}
	return l.Messages[0]
}

// done checks that a call has changed n messages, and refused none.
func done(t *testing.T, n int) func(r operator.Result, err error) {
	t.Helper()
	return func(r operator.Result, err error) {
		t.Helper()
		if err = errors.Join(err, r.Err()); err != nil || r.Done != n {
			t.Fatalf("changed %d messages, %v; want %d", r.Done, err, n)
		}
	}
}

// TestFailedMessagesAreKeptAndRequeued is the usual way to look after failures:
// after three attempts a message is final, the callback keeps it under its id,
// and somebody requeues what was kept.
func TestFailedMessagesAreKeptAndRequeued(t *testing.T) {
	t.Parallel()
	for name, sending := range map[string]bool{"published": true, "received": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { keepAndRequeue(t, sending) })
		})
	}
}

func keepAndRequeue(t *testing.T, sending bool) {
	t.Helper()
	kept := map[string]cap.FailedInfo{} // failed_messages, by message id
	j, tries, broken := newJournal(), 0, true
	attempt := func() error {
		tries++
		if broken {
			return errors.New("the shop is closed")
		}
		return nil
	}
	r := running(t, cap.Options{
		FailedRetryCount:        3,
		FailedThresholdCallback: func(_ context.Context, info cap.FailedInfo) { kept[info.Message.ID] = info },
	}, subscribe.To("t", func(ctx context.Context, s string) error {
		if !sending {
			if err := attempt(); err != nil {
				return err
			}
		}
		return j.handler(ctx, s)
	}))
	if sending {
		r.queue.SetFaults(memqueue.Faults{Refuse: func(*transport.Message) error {
			if err := attempt(); err != nil {
				return errors.Join(transport.ErrRejected, err)
			}
			return nil
		}})
	}
	box, kind := operator.Received, gocap.Subscribe
	if sending {
		box, kind = operator.Published, gocap.Publish
	}
	o := r.operates(t)
	if err := r.Publish(t.Context(), cap.NoTx, "t", "hello"); err != nil {
		t.Fatal(err)
	}
	for round := 1; round <= 2; round++ {
		elapse(10 * time.Minute)
		m := only(t, o, box, operator.Failed)
		info := kept[m.MessageID]
		if tries != 3*round || info.Attempts != 3 || info.Kind != kind || m.Attempts != 3 || m.LastError == "" {
			t.Fatalf("round %d: %d tries, kept %+v of %+v", round, tries, info, m)
		}
		if round == 2 {
			broken = false
		}
		delete(kept, m.MessageID)
		done(t, 1)(o.Requeue(t.Context(), box, m.ID))
	}
	synctest.Wait()
	elapse(time.Second)
	if got := j.all(); !slices.Equal(got, []string{"hello"}) || len(kept) > 0 || tries != 7 {
		t.Errorf("after the repair %v was handled with %d tries, kept %v", got, tries, kept)
	}
	only(t, o, operator.Published, operator.Succeeded)
	only(t, o, operator.Received, operator.Succeeded)
}

// TestARequeueIsPrompt: the message does not wait for a scan.
func TestARequeueIsPrompt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, broken := newJournal(), true
		r := running(t, cap.Options{PollInterval: time.Hour, FallbackWindow: 2 * time.Hour, FailedRetryInterval: 24 * time.Hour},
			subscribe.To("t", func(ctx context.Context, s string) error {
				if broken {
					return errors.New("not yet")
				}
				return j.handler(ctx, s)
			}))
		if err := r.Publish(t.Context(), cap.NoTx, "t", "waits"); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		broken = false
		done(t, 1)(r.operates(t).RequeueMatching(t.Context(),
			operator.Filter{Box: operator.Received, States: []operator.State{operator.Retrying}}, operator.Bulk{}))
		elapse(time.Second)
		if got := j.all(); len(got) != 1 {
			t.Errorf("a second after the requeue %d messages were handled, want 1", len(got))
		}
	})
}

// Case C158: whatever a requeue says it has done happens, once; what it cannot do
// is an error.
func TestARequeueOfEveryState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, release := newJournal(), make(chan struct{})
		r := running(t, cap.Options{},
			subscribe.To("fast", j.handler),
			subscribe.To("slow", j.blocking(release)))
		o := r.operates(t)
		late := cap.NewID()
		for _, err := range []error{
			r.Publish(t.Context(), cap.NoTx, "fast", "again"),
			r.Publish(t.Context(), cap.NoTx, "slow", "in hand"),
			r.Publish(t.Context(), cap.NoTx, "fast", "late", cap.WithDelay(time.Hour), cap.WithID(late)),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		elapse(time.Minute)
		held := only(t, o, operator.Received, operator.Scheduled)
		if res, err := o.Requeue(t.Context(), operator.Received, held.ID); err != nil || !errors.Is(res.Err(), operator.ErrInWork) {
			t.Errorf("requeue of a message in hand: %v, %v; want in work", res.Err(), err)
		}
		if !held.OwnerLiving || held.Topic != "slow" {
			t.Errorf("in hand: %+v", held)
		}
		close(release)
		done(t, 1)(o.Requeue(t.Context(), operator.Received, only(t, o, operator.Received, operator.Succeeded).ID))
		done(t, 1)(o.Requeue(t.Context(), operator.Published, late))
		elapse(time.Minute)
		if got := j.sorted(); !slices.Equal(got, []string{"again", "again", "in hand", "late"}) {
			t.Errorf("handled %v", got)
		}
		if m, err := o.Read(t.Context(), operator.Published, late); err != nil || m.State != operator.Succeeded || m.Attempts != 0 {
			t.Errorf("the delayed message is %+v, %v", m, err)
		}
	})
}

// TestRequeuedWithoutABus: an operator beside a storage whose bus does not run.
func TestRequeuedWithoutABus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, broken := newJournal(), true
		sub := subscribe.To("t", func(ctx context.Context, s string) error {
			if broken {
				return subscribe.Reject(errors.New("never"))
			}
			return j.handler(ctx, s)
		})
		r := newRig(t, cap.Options{}, sub)
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Publish(t.Context(), cap.NoTx, "t", "x"); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		o, err := operator.New(r.store, operator.Config{})
		if err != nil {
			t.Fatal(err)
		}
		done(t, 1)(o.Requeue(t.Context(), operator.Received, only(t, o, operator.Received, operator.Failed).ID))
		broken = false
		r.again(t, cap.Options{}, sub).start(t)
		elapse(10 * time.Second)
		if got := j.all(); len(got) != 1 {
			t.Errorf("handled %v, want the requeued one", got)
		}
	})
}

// TestAMessageIsSentOrCancelled: a cancel at the moment at which a message is due
// says which of both, a thousand times.
func TestAMessageIsSentOrCancelled(t *testing.T) {
	t.Parallel()
	const n = 1000
	r := running(t, cap.Options{PollInterval: 20 * time.Millisecond}, subscribe.To("t", func(context.Context, string) error { return nil }))
	var mu sync.Mutex
	var cancelled []string
	var wg sync.WaitGroup
	for i, id := range messageIDs(n) {
		delay := time.Duration(50+i%50) * time.Millisecond
		if err := r.Publish(t.Context(), cap.NoTx, "t", id, cap.WithID(id), cap.WithDelay(delay)); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			<-time.After(delay + time.Duration(i%25-20)*time.Millisecond)
			switch err := r.Cancel(t.Context(), id); {
			case err == nil:
				mu.Lock()
				defer mu.Unlock()
				cancelled = append(cancelled, `"`+id+`"`)
			case !errors.Is(err, operator.ErrInWork) && !errors.Is(err, operator.ErrNotDelayed) && !errors.Is(err, operator.ErrChanged):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	await(t, "all that was not cancelled is sent", func() bool { return len(r.sent())+len(cancelled) >= n })
	all := append(r.sent(), cancelled...)
	slices.Sort(all)
	if len(slices.Compact(all)) != n || len(cancelled)+len(r.sent()) != n {
		t.Errorf("%d of %d were cancelled, %d sent", len(cancelled), n, len(r.sent()))
	}
	t.Logf("%d cancelled, %d sent", len(cancelled), len(r.sent()))
}

func messageIDs(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = cap.NewID()
	}
	return list
}

// await polls until f reports true.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestCancelSaysWhyNot(t *testing.T) {
	t.Parallel()
	r, id := newRig(t, cap.Options{}), cap.NewID()
	for want, id := range map[error]string{operator.ErrNotFound: cap.NewID(), operator.ErrInvalid: "x"} {
		if err := r.Cancel(t.Context(), id); !errors.Is(err, want) {
			t.Errorf("cancel %s: %v, want %v", id, err, want)
		}
	}
	if err := r.Publish(t.Context(), cap.NoTx, "t", 1, cap.WithID(id)); err != nil {
		t.Fatal(err)
	}
	if err := r.Cancel(t.Context(), id); !errors.Is(err, operator.ErrNotDelayed) {
		t.Errorf("cancel of a message without delay: %v", err)
	}
}

// plain is a storage that can do what is required, and no more.
type plain struct{ storage.Storage }

func TestAStorageWithoutOperator(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{Storage: plain{memstore.New(memstore.Config{})}})
	if _, err := r.Operator(); !errors.Is(err, operator.ErrUnsupported) {
		t.Errorf("Operator: %v", err)
	}
	if err := r.Cancel(t.Context(), cap.NewID()); !errors.Is(err, operator.ErrUnsupported) {
		t.Errorf("Cancel: %v", err)
	}
}
