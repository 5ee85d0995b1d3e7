package cap_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
)

// leftBehind makes a bus of version v1 that has left rows in both tables, and
// one whose subscription it has not.
func leftBehind(t *testing.T, n int) *rig {
	t.Helper()
	fail := func(context.Context, string) error { return subscribe.RetryAfter(time.Minute, errors.New("later")) }
	old := newRig(t, cap.Options{SucceedMessageExpiredAfter: time.Minute, PollInterval: 5 * time.Second}, subscribe.To("t", fail), subscribe.To("#.x", fail, subscribe.Name("t2")))
	mustDo(t, old.Start(t.Context()))
	publishAll(t, old, "t", names("in", n)...)
	elapse(2 * time.Second)
	mustDo(t, old.Stop(t.Context()))
	publishAll(t, old, "t", names("out", n)...)
	m, err := old.store.Join(t.Context(), storage.Instance{Box: storage.Inbox, Version: "v1", Lease: time.Minute})
	mustDo(t, err)
	_, err = m.Accept(t.Context(), &storage.Record{
		ID: storage.ID{7}, Version: "v1", Group: "test", Topic: "t", MessageID: "unmatched", Body: []byte(`"unmatched"`),
	})
	mustDo(t, err)
	mustDo(t, m.Leave(t.Context()))
	return old
}

func TestRowsOfAVersionThatIsGoneAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &lockedBuffer{}
		old := leftBehind(t, 3)
		r := old.again(t, cap.Options{Version: "v2", Logger: logTo(log), PollInterval: 10 * time.Second}).start(t)
		elapse(time.Second)
		const told = "rows of a version that no instance serves"
		if s := log.String(); strings.Count(s, told) != 2 || !strings.Contains(s, "version=v1 box=published rows=3") || !strings.Contains(s, "version=v1 box=received rows=4") {
			t.Errorf("at the start the log says\n%s", s)
		}
		h := r.Health(t.Context())
		if len(h.Versions) != 2 || h.Versions[0].Version != "v1" || h.Versions[0].Rows != 3 || h.Versions[0].Served || len(h.Notes) != 2 || !h.OK {
			t.Errorf("health %+v", h)
		}
		elapse(3*time.Hour + time.Minute)
		if n := strings.Count(log.String(), told); n != 2*4 {
			t.Errorf("told %d times in 3 hours, want twice an hour", n)
		}
		old.start(t)
		elapse(time.Second)
		for _, v := range r.Health(t.Context()).Versions {
			if !v.Served {
				t.Errorf("an instance of it lives: %+v", v)
			}
		}
		elapse(2 * time.Hour)
		if n := strings.Count(log.String(), told); n != 2*4 {
			t.Errorf("told while an instance of it lives")
		}
	})
}

// TestAlsoVersionsTakesTheRowsOfOthers, of both tables, as its own.
func TestAlsoVersionsTakesTheRowsOfOthers(t *testing.T) {
	t.Parallel()
	for _, lock := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			j, log := newJournal(), &lockedBuffer{}
			old := leftBehind(t, 700)
			r := old.again(t, cap.Options{Version: "v2", AlsoVersions: []string{"v0", "v1"}, UseStorageLock: lock, Logger: logTo(log), SucceedMessageExpiredAfter: time.Minute},
				subscribe.To("t", j.handler)).start(t)
			publishAll(t, r, "t", "own")
			elapse(2 * time.Minute)
			want := slices.Concat(names("in", 700), names("out", 700), []string{"own", "unmatched"})
			if got := j.sorted(); !slices.Equal(got, want) {
				t.Errorf("%d handled, want %d once each; log:\n%s", len(got), len(want), log.String())
			}
			for _, box := range []storage.Box{storage.Outbox, storage.Inbox} {
				for _, rec := range old.store.Records(box) {
					if rec.Status != storage.Succeeded {
						t.Fatalf("a row %s of version %s is %v", box, rec.Version, rec.Status)
					}
				}
			}
			if h := r.Health(t.Context()); len(h.Versions) != 0 || !h.OK || strings.Contains(log.String(), "no instance serves") {
				t.Errorf("health %+v, log:\n%s", h, log.String())
			}
			elapse(7 * time.Minute)
			if n := len(old.store.Records(storage.Outbox)) + len(old.store.Records(storage.Inbox)); n != 0 {
				t.Errorf("%d rows are left when all have expired", n)
			}
		})
	}
}

// TestAlsoVersionsTakesRowsWithAKey: those received and those not sent, each in
// their order, one after another without waiting for a look each.
func TestAlsoVersionsTakesRowsWithAKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		received, sent := newJournal(), newJournal()
		old := running(t, cap.Options{}, subscribe.To("t", func(context.Context, turn) error { return subscribe.Snooze(time.Second) }, subscribe.Ordered()))
		for n := 1; n <= 9; n++ {
			if n == 5 {
				elapse(time.Second)
				mustDo(t, old.Stop(t.Context()))
			}
			old.say(t, "t", turn{"k", n})
		}
		old.again(t, cap.Options{Version: "v2", AlsoVersions: []string{"v1"}, PollInterval: 10 * time.Second}, subscribe.To("t", func(_ context.Context, m turn) error {
			if m.N < 5 {
				received.add(fmt.Sprint(m.N))
			} else {
				sent.add(fmt.Sprint(m.N))
			}
			return nil
		}, subscribe.Ordered())).start(t)
		elapse(25 * time.Second)
		if r, s := fmt.Sprint(received.all()), fmt.Sprint(sent.all()); r != "[1 2 3 4]" || s != "[5 6 7 8 9]" {
			t.Errorf("handled: %s that were received, %s that were not sent", r, s)
		}
	})
}

// TestAlsoVersionsWaitsForInstancesThatSendElsewhere: they may live for long.
func TestAlsoVersionsWaitsForInstancesThatSendElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, log := newJournal(), &lockedBuffer{}
		old := newRig(t, cap.Options{})
		there := old.again(t, cap.Options{Transport: elsewhere{old.queue}, PollInterval: 10 * time.Second})
		mustDo(t, there.Start(t.Context()))
		old.again(t, cap.Options{Version: "v2", AlsoVersions: []string{"v1"}, Logger: logTo(log), PollInterval: 10 * time.Second}, subscribe.To("t", j.handler)).start(t)
		elapse(time.Second)
		there.queue.Disconnect()
		publishAll(t, there, "t", "m")
		elapse(2 * time.Hour)
		there.queue.Reconnect()
		if n := strings.Count(log.String(), "another destination"); n == 0 || n > 6 {
			t.Errorf("told %d times in two hours:\n%s", n, log.String())
		}
		mustDo(t, there.Stop(t.Context()))
		publishAll(t, there, "t", "left")
		elapse(20 * time.Second)
		if got := j.sorted(); !slices.Contains(got, "left") {
			t.Errorf("handled %v", got)
		}
		if err := old.again(t, cap.Options{Transport: elsewhere{old.queue}}).Start(t.Context()); !errors.Is(err, storage.ErrDestination) {
			t.Errorf("start of one that sends elsewhere while its rows are taken over: %v", err)
		}
	})
}

func TestAlsoVersionsLeavesRowsOfTheLivingAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newJournal(), newJournal()
		old := running(t, cap.Options{PollInterval: 5 * time.Second}, subscribe.To("t", func(ctx context.Context, s string) error {
			pause(10 * time.Minute)
			return a.handler(ctx, s)
		}))
		elapse(time.Second)
		publishAll(t, old, "t", names("m", 3)...)
		elapse(time.Second)
		old.again(t, cap.Options{Version: "v2", AlsoVersions: []string{"v1"}}, subscribe.To("t", b.handler)).start(t)
		elapse(time.Hour)
		if len(a.all()) != 3 || len(b.all()) != 0 {
			t.Errorf("%d and %d handled, want 3 and none", len(a.all()), len(b.all()))
		}
	})
}
