package cap_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

func TestNothingThatIsSlowOrIdleStandsStill(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts cap.Options
		do   func(t *testing.T, r *rig)
	}{
		"idle":       {do: func(*testing.T, *rig) {}},
		"broker":     {do: func(_ *testing.T, r *rig) { r.queue.Disconnect() }},
		"blocked":    {opts: cap.Options{Transport: slow{memqueue.New(memqueue.Config{}), 59 * time.Second}}},
		"slow reads": {opts: cap.Options{Storage: &slowStore{memstore.New(memstore.Config{}), 9 * time.Second}}},
		"paused": {do: func(t *testing.T, r *rig) {
			t.Helper()
			if err := r.Pause("test"); err != nil {
				t.Error(err)
			}
		}},
		"handler": {},
	} {
		synctest.Test(t, func(t *testing.T) {
			log := &lockedBuffer{}
			opts := c.opts
			opts.Logger, opts.PollInterval = logTo(log), 5*time.Second
			r := &rig{store: memstore.New(memstore.Config{}), queue: memqueue.New(memqueue.Config{})}
			if s, ok := opts.Transport.(slow); ok { // made in the bubble
				opts.Transport = slow{r.queue, s.wait}
			}
			if s, ok := opts.Storage.(*slowStore); ok {
				opts.Storage = &slowStore{r.store, s.wait}
			}
			var cut sync.Map
			r = r.again(t, opts, subscribe.To("t", func(ctx context.Context, _ string) error {
				select {
				case <-time.After(50 * time.Minute):
				case <-ctx.Done():
					cut.Store(context.Cause(ctx).Error(), true)
				}
				return nil
			}))
			if err := r.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			elapse(time.Second)
			if c.do != nil {
				c.do(t, r)
			}
			if name != "idle" {
				for range 5 {
					if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
						t.Fatal(err)
					}
				}
			}
			elapse(time.Hour)
			if h := r.Health(t.Context()); !h.Alive {
				t.Errorf("%s: %v", name, h.Reasons)
			}
			if s := log.String(); strings.Contains(s, standsStill) || strings.Contains(s, "lease lost") {
				t.Errorf("%s: %s", name, s)
			}
			cut.Range(func(why, _ any) bool {
				t.Errorf("%s: a handler was cut: %v", name, why)
				return true
			})
			_ = r.Stop(t.Context()) // it cuts handlers
			elapse(time.Minute)     // the slow calls end
		})
	}
}

// TestWhatIsPublishedWhileTheBrokerIsAwayIsAnyones: the number is given up when
// the broker has been away for a FallbackWindow and nothing is in hand.
func TestWhatIsPublishedWhileTheBrokerIsAwayIsAnyones(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := running(t, cap.Options{})
		r.queue.Disconnect()
		publish := func() int64 {
			t.Helper()
			id := cap.NewID()
			if err := r.Publish(t.Context(), cap.NoTx, "t", "m", cap.WithID(id)); err != nil {
				t.Fatal(err)
			}
			for _, rec := range r.store.Records(storage.Outbox) {
				if rec.ID.String() == id {
					return rec.Owner
				}
			}
			return -1
		}
		if publish() == 0 {
			t.Error("published before as nobody's")
		}
		elapse(14 * time.Second)
		if publish() == 0 {
			t.Error("published within a FallbackWindow as nobody's")
		}
		elapse(4 * time.Second)
		if h := r.Health(t.Context()); publish() != 0 || !h.Sending.Resting || h.Sending.Living || h.BrokerAway.IsZero() || h.OK || !h.Alive || !h.Ready {
			t.Errorf("not given up: %+v", h)
		}
		r.queue.Reconnect()
		elapse(3 * time.Second)
		if h := r.Health(t.Context()); publish() == 0 || !h.Sending.Living || !h.OK {
			t.Errorf("not taken up again: %+v", h)
		}
	})
}
