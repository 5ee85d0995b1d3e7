package cap_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap"
	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

func wantHealth(t *testing.T, when string, h gocap.Health, ok, alive, ready bool, reasons ...string) {
	t.Helper()
	if h.OK != ok || h.Alive != alive || h.Ready != ready {
		t.Errorf("%s: ok %v, alive %v, ready %v; want %v, %v, %v (%q)", when, h.OK, h.Alive, h.Ready, ok, alive, ready, h.Reasons)
	}
	if len(h.Reasons) != len(reasons) {
		t.Errorf("%s: reasons %q, want %q", when, h.Reasons, reasons)
		return
	}
	for i, want := range reasons {
		if !strings.Contains(h.Reasons[i], want) {
			t.Errorf("%s: reason %q, want one with %q", when, h.Reasons[i], want)
		}
	}
}

func TestHealthThroughALife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		store := &unruly{Storage: memstore.New(memstore.Config{})}
		r := newRig(t, cap.Options{Storage: store}, subscribe.To("t", j.handler))
		wantHealth(t, "before Start", r.Health(t.Context()), false, true, false, "does not run")
		mustDo(t, r.Start(t.Context()))
		elapse(time.Second)
		h := r.Health(t.Context())
		wantHealth(t, "running", h, true, true, true)
		if !h.Running || !h.Sending.Living || !h.Handling.Living || len(h.Groups) != 1 || h.Groups[0].Name != "test" || h.Groups[0].Receivers != 1 {
			t.Errorf("running: %+v", h)
		}
		failing(&store.check, errors.New("no database"))
		wantHealth(t, "no database", r.Health(t.Context()), false, true, false, "storage: no database")
		failing(&store.check, nil)
		mustDo(t, r.Stop(t.Context()))
		wantHealth(t, "after Stop", r.Health(t.Context()), false, true, false, "does not run")
	})
}

func TestHealthOfABusThatOnlyPublishes(t *testing.T) {
	t.Parallel()
	bus, err := cap.New(cap.Options{Storage: memstore.New(memstore.Config{}), Registry: &subscribe.Registry{}})
	mustDo(t, err)
	wantHealth(t, "without a transport", bus.Health(t.Context()), true, true, true)
}

func TestABrokerThatIsAwayIsSeenInHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := running(t, cap.Options{}, subscribe.To("t", func(context.Context, string) error { return nil }))
		elapse(time.Second)
		begun := time.Now()
		r.queue.Disconnect()
		elapse(time.Second)
		publishAll(t, r, "t", "m")
		elapse(5 * time.Second)
		h := r.Health(t.Context())
		wantHealth(t, "broker away", h, false, true, true, "group test receives nothing since", "the broker has been away since", "transport: ")
		if g := h.Groups[0]; g.Failing.Sub(begun) > time.Second || g.LastError == "" || h.BrokerAway.Before(begun) || h.Unsent.Overdue < 5*time.Second || h.Unsent.Age < 5*time.Second {
			t.Errorf("%+v", h)
		}
		r.queue.Reconnect()
		elapse(15 * time.Second)
		h = r.Health(t.Context())
		wantHealth(t, "broker back", h, true, true, true)
		if h.Unsent != (gocap.Backlog{}) || h.Groups[0].LastError != "" {
			t.Errorf("%+v", h)
		}
	})
}

func TestHealthTellsWhatRunsAndWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		j := newJournal()
		r := running(t, cap.Options{Concurrency: 2}, subscribe.To("t", j.blocking(release), subscribe.Group("a"), subscribe.Name("long")),
			subscribe.To("t", j.handler, subscribe.Group("b")))
		elapse(time.Second)
		begun := time.Now()
		publishAll(t, r, "t", names("m", 5)...)
		elapse(time.Minute)
		h := r.Health(t.Context())
		wantHealth(t, "with a long run", h, true, true, true)
		run := h.LongestRun
		if run == nil || run.Topic != "t" || run.Group != "a" || run.Subscriber != "long" || run.MessageID == "" || run.Since.Sub(begun) > time.Second {
			t.Errorf("longest run %+v", run)
		}
		if a, b := h.Groups[0], h.Groups[1]; a.Handlers != 2 || a.Unhandled.Overdue < 59*time.Second || b.Handlers != 0 || b.Unhandled.Overdue != 0 {
			t.Errorf("groups %+v", h.Groups)
		}
		if h.Handling.InHand != 5 {
			t.Errorf("%d in hand, want 5", h.Handling.InHand)
		}
		text, err := json.Marshal(h)
		mustDo(t, err)
		var back gocap.Health
		mustDo(t, json.Unmarshal(text, &back))
		if !strings.Contains(string(text), `"ok":true`) || strings.Contains(string(text), "broker_away") || back.LongestRun.Topic != "t" {
			t.Errorf("as JSON: %s", text)
		}
		close(release)
		elapse(time.Second)
		if h := r.Health(t.Context()); h.LongestRun != nil || h.Groups[0].Unhandled.Overdue != 0 {
			t.Errorf("when all is handled: %+v", h)
		}
	})
}

// hanging is a storage and a transport whose checks do not return before release.
type hanging struct {
	*memstore.Store

	calls   atomic.Int32
	release chan struct{}
}

func (s *hanging) Check(context.Context) error {
	s.calls.Add(1)
	<-s.release
	return nil
}

type hangingQueue struct {
	*memqueue.Queue

	s *hanging
}

func (q hangingQueue) Check(ctx context.Context) error { return q.s.Check(ctx) }

// TestHealthDoesNotHang, whatever its ctx and the adapters do, and does not pile
// up calls.
func TestHealthDoesNotHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &hanging{Store: memstore.New(memstore.Config{}), release: make(chan struct{})}
		r := newRig(t, cap.Options{Storage: s, Transport: hangingQueue{memqueue.New(memqueue.Config{}), s}})
		for range 3 {
			begun := time.Now()
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					h := r.Health(t.Context())
					if slices.Contains([]string{h.Storage, h.Transport}, "") || h.OK || !h.Alive {
						t.Errorf("while the checks hang: %+v", h)
					}
				})
			}
			all.Wait()
			if d := time.Since(begun); d > 5*time.Second {
				t.Errorf("it took %s", d)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		if h := r.Health(ctx); h.OK || time.Since(begun) > 200*time.Millisecond {
			t.Errorf("a context of 100 ms: %s, %v", time.Since(begun), h.Reasons)
		}
		if n := s.calls.Load(); n != 2 {
			t.Errorf("%d checks were begun, want one of the storage and one of the transport", n)
		}
		close(s.release)
		synctest.Wait()
		if h := r.Health(t.Context()); h.Storage != "" || h.Transport != "" {
			t.Errorf("when they have returned: %+v", h)
		}
	})
}

// moody is a storage whose Check panics.
type moody struct{ *memstore.Store }

func (moody) Check(context.Context) error { panic("no mood") }

func TestHealthSurvivesAPanicOfAnAdapter(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{Storage: moody{memstore.New(memstore.Config{})}})
	if h := r.Health(t.Context()); !strings.Contains(h.Storage, "no mood") {
		t.Errorf("storage %q", h.Storage)
	}
}

// TestHealthWhileTheBusStartsAndStops may be asked at any time.
func TestHealthWhileTheBusStartsAndStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cap.Options{AlsoVersions: []string{"v0"}}, subscribe.To("t", func(context.Context, string) error { return nil }))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for ctx.Err() == nil {
					_ = r.Health(ctx)
					pause(time.Millisecond)
				}
			})
		}
		for range 10 {
			mustDo(t, r.Start(t.Context()))
			publishAll(t, r, "t", "m")
			pause(20 * time.Millisecond)
			mustDo(t, r.Stop(t.Context()))
		}
		cancel()
		all.Wait()
	})
}

// TestAReceiverThatFailsIsSeenInHealth, and since when.
func TestAReceiverThatFailsIsSeenInHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &refusingQueue{Queue: memqueue.New(memqueue.Config{})}
		r := running(t, cap.Options{Transport: q, ConsumerCount: 3}, subscribe.To("t", func(context.Context, string) error { return nil }))
		elapse(time.Minute)
		h := r.Health(t.Context())
		wantHealth(t, "refused", h, false, true, true, "group test receives nothing since 2000-01-01T00:00:00Z: access refused")
		q.well.Store(true)
		elapse(12 * time.Second)
		h = r.Health(t.Context())
		wantHealth(t, "well again", h, true, true, true)
		if h.Groups[0].Receivers != 3 {
			t.Errorf("%d receivers, want 3", h.Groups[0].Receivers)
		}
	})
}

type refusingQueue struct {
	*memqueue.Queue

	well atomic.Bool
}

func (q *refusingQueue) Receive(ctx context.Context, src transport.Source, deliver func(context.Context, []transport.Delivery)) error {
	if !q.well.Load() {
		return errors.New("access refused")
	}
	return q.Queue.Receive(ctx, src, deliver)
}
