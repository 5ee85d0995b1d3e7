package cap_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
)

const standsStill = "engine stands still"

// TestASendThatNeverReturnsLeavesTheRowsToOthers: and the bus that stood still
// goes on with what it can, and says what stands still.
func TestASendThatNeverReturnsLeavesTheRowsToOthers(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"", "t"} {
		synctest.Test(t, func(t *testing.T) {
			j, log := newJournal(), &lockedBuffer{}
			r := newRig(t, cap.Options{})
			hung := &deaf{Queue: r.queue, topic: topic, release: make(chan struct{})}
			a := r.again(t, cap.Options{Transport: hung, Logger: logTo(log)})
			if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.again(t, cap.Options{}, subscribe.To("t", j.handler), subscribe.To("other", j.handler)).start(t)
			elapse(time.Second)
			if err := a.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
				t.Fatal(err)
			}
			elapse(60 * time.Second) // the time of a Send
			if h := a.Health(t.Context()); hung.hung.Load() == 0 || len(j.all()) > 0 || !h.Alive {
				t.Fatalf("%d hang, handled %v, health %+v", hung.hung.Load(), j.all(), h)
			}
			elapse(15*time.Second + 15*time.Second) // FallbackWindow, and what it takes to see it
			if got := j.all(); len(got) != 1 {
				t.Fatalf("handled %v, want the message, by the other instance", got)
			}
			if h := a.Health(t.Context()); h.Alive || h.OK || h.Sending.Stuck != "sending of topic t" || h.Handling.Stuck != "" {
				t.Errorf("health %+v", h)
			}
			if s := log.String(); strings.Count(s, standsStill) != 1 || !strings.Contains(s, "sending of topic t") || !strings.Contains(s, "lease lost") {
				t.Errorf("the log says\n%s", s)
			}
			elapse(time.Minute)
			if err := a.Publish(t.Context(), cap.NoTx, "other", "o"); err != nil {
				t.Fatal(err)
			}
			elapse(5 * time.Second)
			if topic == "t" && len(j.all()) != 2 {
				t.Errorf("handled %v; another topic waits though only one stands still", j.all())
			}
			if h := a.Health(t.Context()); topic == "t" && !h.Sending.Living {
				t.Error("it has not joined anew")
			}
			close(hung.release)
			elapse(time.Minute)
			if h := a.Health(t.Context()); !h.Alive || !h.Sending.Living {
				t.Errorf("after the call has returned: %+v", h)
			}
			if err := a.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAllSendersThatStandStillDoNotJoin: what is published meanwhile is anyone's.
func TestAllSendersThatStandStillDoNotJoin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := newRig(t, cap.Options{})
		hung := &deaf{Queue: r.queue, release: make(chan struct{})}
		a := r.again(t, cap.Options{Transport: hung})
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		topics := names("t", 16)
		for _, topic := range topics {
			if err := a.Publish(t.Context(), cap.NoTx, topic, topic); err != nil {
				t.Fatal(err)
			}
		}
		elapse(3 * time.Minute)
		if h := a.Health(t.Context()); hung.hung.Load() != 16 || h.Sending.Living || h.Alive {
			t.Fatalf("%d hang; health %+v", hung.hung.Load(), h)
		}
		subs := make([]subscribe.Subscription, 0, len(topics)+1)
		for _, topic := range append(topics, "late") {
			subs = append(subs, subscribe.To(topic, j.handler))
		}
		r.again(t, cap.Options{}, subs...).start(t)
		if err := a.Publish(t.Context(), cap.NoTx, "late", "late"); err != nil {
			t.Fatal(err)
		}
		elapse(3 * time.Second)
		if got := j.all(); len(got) != 17 {
			t.Errorf("another instance handled %d of 17: %v", len(got), got)
		}
		close(hung.release)
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestALookThatNeverReturnsLeavesTheRowsToOthers, of either table.
func TestALookThatNeverReturnsLeavesTheRowsToOthers(t *testing.T) {
	t.Parallel()
	for _, box := range []storage.Box{storage.Outbox, storage.Inbox} {
		synctest.Test(t, func(t *testing.T) {
			j, log := newJournal(), &lockedBuffer{}
			r := newRig(t, cap.Options{})
			store := &deafStore{Store: r.store, box: box, release: make(chan struct{})}
			failOnA := func(context.Context, string) error { return subscribe.RetryAfter(time.Minute, errors.New("later")) }
			subs, delay := []subscribe.Subscription{subscribe.To("t", failOnA)}, time.Duration(0)
			if box == storage.Outbox { // found by a look when it is due; the other bus receives it
				subs, delay = nil, time.Minute
			}
			a := r.again(t, cap.Options{Storage: store, Logger: logTo(log)}, subs...)
			if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			elapse(time.Second)
			if err := a.Publish(t.Context(), cap.NoTx, "t", "m", cap.WithDelay(delay)); err != nil {
				t.Fatal(err)
			}
			elapse(2 * time.Second)
			store.deaf.Store(true)
			b := r.again(t, cap.Options{}, subscribe.To("t", j.handler))
			elapse(time.Minute)
			b.start(t)
			elapse(3 * time.Minute) // it may be received, and fail, once more by a
			if got := j.all(); len(got) == 0 {
				t.Errorf("%s: not handled by the other instance; log:\n%s", box, log.String())
			}
			h := a.Health(t.Context())
			stuck := map[storage.Box]string{storage.Outbox: h.Sending.Stuck, storage.Inbox: h.Handling.Stuck}
			if h.Alive || stuck[box] != "reading due rows" || strings.Count(log.String(), standsStill) != 1 {
				t.Errorf("%s: health %+v, log:\n%s", box, h, log.String())
			}
			store.deaf.Store(false)
			close(store.release)
			elapse(time.Minute)
			if h := a.Health(t.Context()); !h.OK {
				t.Errorf("%s: after it has returned: %v", box, h.Reasons)
			}
			if err := a.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAHandlerThatRunsCountsAsMoving: it is not cut though a look hangs; once it
// has ended, the rows are left to others.
func TestAHandlerThatRunsCountsAsMoving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, done := &lockedBuffer{}, make(chan error, 1)
		store := &deafStore{Store: memstore.New(memstore.Config{}), box: storage.Inbox, release: make(chan struct{})}
		r := newRig(t, cap.Options{Storage: store, Logger: logTo(log), PollInterval: 5 * time.Second}, subscribe.To("t", func(ctx context.Context, _ string) error {
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			done <- context.Cause(ctx)
			return nil
		}))
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
			t.Fatal(err)
		}
		elapse(time.Second)
		store.deaf.Store(true)
		elapse(50 * time.Minute)
		h := r.Health(t.Context())
		if h.Alive || !h.Handling.Living || h.LongestRun == nil || h.LongestRun.Topic != "t" {
			t.Errorf("while it runs: %+v", h)
		}
		if err := <-done; err != nil {
			t.Errorf("the handler was cut: %v", err)
		}
		elapse(time.Minute)
		if h := r.Health(t.Context()); h.Handling.Living || strings.Count(log.String(), standsStill) != 1 {
			t.Errorf("after it has ended: %+v, log:\n%s", h, log.String())
		}
		close(store.release)
		if err := r.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
