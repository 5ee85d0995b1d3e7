package cap_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap"
	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
)

func publishAll(t *testing.T, r *rig, topic string, msgs ...string) {
	t.Helper()
	for _, m := range msgs {
		if err := r.Publish(t.Context(), cap.NoTx, topic, m); err != nil {
			t.Fatal(err)
		}
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAPausedGroupStartsNothing: what runs finishes, what waits goes back to the
// table, other groups go on, and Resume brings everything.
func TestAPausedGroupStartsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow, other := newJournal(), newJournal()
		r := running(t, cap.Options{Concurrency: 1}, subscribe.To("t", func(ctx context.Context, s string) error {
			pause(10 * time.Second)
			return slow.handler(ctx, s)
		}, subscribe.Group("slow")), subscribe.To("t", other.handler, subscribe.Group("other")))
		elapse(time.Second)
		publishAll(t, r, "t", names("m", 20)...)
		elapse(25 * time.Second)
		if got := slow.all(); len(got) != 2 {
			t.Fatalf("handled %v before the pause", got)
		}
		mustDo(t, r.Pause("slow"))
		mustDo(t, r.Pause("slow"))
		synctest.Wait()
		if h := r.Health(t.Context()); h.Handling.InHand != 1 {
			t.Errorf("%d in hand, want the one that runs", h.Handling.InHand)
		}
		elapse(time.Hour)
		if got := slow.all(); len(got) != 3 {
			t.Errorf("handled %v while it is paused; want what ran to finish, and nothing to begin", got)
		}
		if got := other.all(); len(got) != 20 {
			t.Errorf("another group has handled %v", got)
		}
		h := r.Health(t.Context())
		i := slices.IndexFunc(h.Groups, func(g gocap.GroupHealth) bool { return g.Name == "slow" })
		if g := h.Groups[i]; g.Paused.IsZero() || g.Receivers != 0 || g.Unhandled.Overdue < time.Hour || !h.OK {
			t.Errorf("health of the paused group: %+v; %v", g, h.Reasons)
		}
		mustDo(t, r.Resume("slow"))
		mustDo(t, r.Resume("slow"))
		elapse(171 * time.Second)
		if got := slow.sorted(); !slices.Equal(got, names("m", 20)) {
			t.Errorf("after Resume: %v", got)
		}
	})
}

// TestAPauseIsOneInstancesOwn, and outlives what happens to the broker.
func TestAPauseIsOneInstancesOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newJournal(), newJournal()
		ra := running(t, cap.Options{}, subscribe.To("t", a.handler))
		rb := ra.again(t, cap.Options{}, subscribe.To("t", b.handler)).start(t)
		elapse(time.Second)
		mustDo(t, ra.Pause("test"))
		for range 3 {
			ra.queue.Disconnect()
			elapse(time.Minute)
			ra.queue.Reconnect()
			elapse(time.Minute)
			publishAll(t, ra, "t", names("m", 10)...)
			elapse(5 * time.Second)
		}
		if len(a.all()) != 0 || len(b.all()) != 30 {
			t.Errorf("the paused one handled %d, the other %d; want 0 and 30", len(a.all()), len(b.all()))
		}
		mustDo(t, ra.Resume("test"))
		elapse(time.Second) // in process, a group that nobody receives takes nothing
		mustDo(t, rb.Pause("test"))
		synctest.Wait() // until its receiver has ended: what comes before is its own
		publishAll(t, ra, "t", names("m", 10)...)
		elapse(5 * time.Second)
		if len(a.all()) != 10 || len(b.all()) != 30 {
			t.Errorf("changed places: %d and %d, want 10 and 30", len(a.all()), len(b.all()))
		}
	})
}

// TestRowsOfAPausedGroupStayInTheTable: failed ones, unmatched ones, and those of
// a dead instance.
func TestRowsOfAPausedGroupStayInTheTable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := newRig(t, cap.Options{})
		dead, err := r.store.Join(t.Context(), storage.Instance{Box: storage.Inbox, Version: "v1", Lease: 15 * time.Second})
		mustDo(t, err)
		for id, subscriber := range map[byte]string{1: "t", 2: ""} {
			_, err = dead.Accept(t.Context(), &storage.Record{
				ID: storage.ID{id}, Version: "v1", Topic: "t", Group: "test", Subscriber: subscriber,
				MessageID: "of the dead" + subscriber, Body: []byte(`"dead"`),
			})
			mustDo(t, err)
		}
		failed := false
		r = r.again(t, cap.Options{UnhandledAfter: time.Minute}, subscribe.To("t", func(ctx context.Context, s string) error {
			if s == "fails" && !failed {
				failed = true
				return subscribe.RetryAfter(time.Minute, errors.New("later"))
			}
			return j.handler(ctx, s)
		}))
		mustDo(t, r.Start(t.Context()))
		mustDo(t, r.Pause("test"))
		mustDo(t, r.Resume("test"))
		elapse(time.Second)
		publishAll(t, r, "t", "fails")
		elapse(2 * time.Second)
		mustDo(t, r.Pause("test"))
		elapse(30 * time.Minute)
		if got := j.all(); !failed || !slices.Equal(got, []string{"dead"}) {
			t.Errorf("handled %v while it is paused; want what was unmatched at the start alone", got)
		}
		mustDo(t, r.Stop(t.Context())) // clean, though paused
		r.start(t)
		elapse(2 * time.Minute)
		if got := j.sorted(); !slices.Equal(got, []string{"dead", "dead", "fails"}) {
			t.Errorf("after the next start: %v", got)
		}
	})
}

// TestAPausedGroupTakesNoKeysOver: rows with a key that nobody owns are for those
// who go on; and Resume finds its own at once.
func TestAPausedGroupTakesNoKeysOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		h := subscribe.To("t", func(context.Context, turn) error { j.add("x"); return nil }, subscribe.Ordered())
		old := running(t, cap.Options{}, subscribe.To("t", func(context.Context, turn) error { return subscribe.Snooze(time.Minute) }, subscribe.Ordered()))
		for n := range 4 {
			old.say(t, "t", turn{fmt.Sprint(n), 1})
		}
		elapse(time.Second)
		r := old.again(t, cap.Options{PollInterval: 14 * time.Second}, h).start(t)
		mustDo(t, r.Pause("test"))
		mustDo(t, old.Stop(t.Context()))
		owner := old.store.Records(storage.Inbox)[0].Owner
		elapse(2 * time.Minute)
		for _, rec := range old.store.Records(storage.Inbox) {
			if rec.Owner != owner {
				t.Errorf("the paused one has taken a row with the key %q", rec.Key)
			}
		}
		mustDo(t, r.Resume("test"))
		elapse(time.Second)
		if n := len(j.all()); n != 4 {
			t.Errorf("%d of 4 handled within a second", n)
		}
	})
}

func TestPauseOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nop := func(context.Context, string) error { return nil }
		r := newRig(t, cap.Options{GroupNamePrefix: "shop"}, subscribe.To("t", nop, subscribe.Group("files")), subscribe.To("t", nop, subscribe.Group("coupon")))
		if err := r.Pause("files"); err == nil || !strings.Contains(err.Error(), "does not run") {
			t.Errorf("before Start: %v", err)
		}
		r.start(t)
		for _, f := range []func(string) error{r.Pause, r.Resume} {
			if err := f("file"); err == nil || !strings.Contains(err.Error(), `no group "file"`) ||
				!strings.Contains(err.Error(), "shop.files") || !strings.Contains(err.Error(), "shop.coupon") {
				t.Errorf("unknown group: %v", err)
			}
			mustDo(t, f("files"))
			mustDo(t, f("shop.files"))
		}
		none := r.again(t, cap.Options{}).start(t)
		if err := none.Pause("x"); err == nil || !strings.Contains(err.Error(), "serves none") {
			t.Errorf("a bus without groups: %v", err)
		}
	})
}

// TestPausingAndResumingLosesNothing, many at once.
func TestPausingAndResumingLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		handler := func(ctx context.Context, s string) error {
			pause(7 * time.Millisecond)
			return j.handler(ctx, s)
		}
		ra := running(t, cap.Options{Concurrency: 4, ConsumerCount: 2}, subscribe.To("t", handler))
		rb := ra.again(t, cap.Options{Concurrency: 4}, subscribe.To("t", handler)).start(t)
		var all sync.WaitGroup
		for i, r := range []*rig{ra, rb, ra} {
			all.Go(func() {
				for k := range 50 {
					if err := errors.Join(r.Pause("test"), ra.Publish(t.Context(), cap.NoTx, "t", names("m", 150)[i*50+k])); err != nil {
						t.Error(err)
					}
					pause(time.Duration(k*i) * time.Millisecond)
					if err := r.Resume("test"); err != nil {
						t.Error(err)
					}
					pause(time.Duration(k*7%20) * time.Millisecond)
				}
			})
		}
		all.Wait()
		elapse(time.Minute)
		if got := j.sorted(); !slices.Equal(got, names("m", 150)) {
			t.Errorf("%d handled, %d different, want 150 once each", len(got), len(slices.Compact(got)))
		}
	})
}
