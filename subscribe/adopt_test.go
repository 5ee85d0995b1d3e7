package subscribe_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// tenMinutes is a shorter UnhandledAfter, as minutes are work for a bubble, too.
func tenMinutes(c *subscribe.ConsumerConfig) { c.UnhandledAfter = 10 * time.Minute }

// inject puts a message into the queue of group test, whether anybody there
// subscribes to its topic or not.
func (r *rig) inject(topic, id, body string) {
	r.t.Helper()
	if err := r.queue.InjectTo("test.v1", &transport.Message{ID: id, Topic: topic, Body: []byte(body)}); err != nil {
		r.t.Fatal(err)
	}
}

// A rolling upgrade: the old instance receives what only the new one can handle.
func TestAnInstanceThatHasTheSubscriptionAdoptsWhatAnotherReceived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		old := running(t, tenMinutes, subscribe.To("known", seen.handler("")))
		synctest.Wait()
		for i := range 250 {
			old.inject("new.topic", fmt.Sprint(i), fmt.Sprintf(`"%d"`, i))
		}
		elapse(2 * time.Minute)
		for _, rec := range old.records() {
			if rec.Final || rec.Subscriber != "" {
				t.Fatalf("a row that waits is %v, final %t, of subscriber %q", rec.Status, rec.Final, rec.Subscriber)
			}
		}
		elapse(7 * time.Minute)
		newRig(t, shared{old.store, old.queue}, tenMinutes,
			subscribe.To("known", seen.handler("")),
			subscribe.To("new.*", seen.handler("one ")),
			subscribe.To("#", seen.handler("two ")),
			subscribe.To("other", seen.handler("three "))).start()
		elapse(time.Minute)
		for i := range 250 {
			if one, two := seen.of(fmt.Sprint("one ", i)), seen.of(fmt.Sprint("two ", i)); one != 1 || two != 1 {
				t.Fatalf("message %d handled %d and %d times, want once by each that matches", i, one, two)
			}
		}
		if n := len(old.records()); n != 500 || seen.kinds() != 500 {
			t.Errorf("%d rows, %d kinds of runs, want 500", n, seen.kinds())
		}
		elapse(15 * time.Minute)
		if len(old.callbacks()) > 0 {
			t.Errorf("%d messages failed, want none", len(old.callbacks()))
		}
	})
}

func TestSeveralInstancesAdoptAMessageOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		old := running(t, tenMinutes, subscribe.To("known", seen.handler("")))
		synctest.Wait()
		for i := range 100 {
			old.inject("new", fmt.Sprint(i), fmt.Sprintf(`"%d"`, i))
		}
		elapse(time.Second)
		for range 3 {
			newRig(t, shared{old.store, old.queue}, tenMinutes, subscribe.To("new", seen.handler(""))).start()
		}
		elapse(time.Minute)
		for i := range 100 {
			if n := seen.of(fmt.Sprint(i)); n != 1 {
				t.Errorf("message %d handled %d times, want once", i, n)
			}
		}
	})
}

func TestWhatNobodyServesEndsAfterUnhandledAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		r := running(t, tenMinutes, subscribe.To("known", seen.handler("")))
		synctest.Wait()
		r.inject("unknown", "1", `"m"`)
		elapse(9 * time.Minute)
		if rec := r.record(); rec.Final || len(r.callbacks()) > 0 {
			t.Fatalf("the row is final after 9 minutes: %s", rec.LastError)
		}
		elapse(2 * time.Minute)
		rec := r.record()
		if !rec.Final || rec.Status != storage.Failed || rec.Retries != 0 || string(rec.Body) != `"m"` || rec.LastError != "no subscription takes it" {
			t.Errorf("row: final %t, %v, %d attempts, body %s, %q", rec.Final, rec.Status, rec.Retries, rec.Body, rec.LastError)
		}
		elapse(15 * time.Minute)
		if len(r.callbacks()) != 1 || r.callbacks()[0].m.Topic != "unknown" || r.callbacks()[0].m.ID != "1" {
			t.Errorf("%d callbacks, want one", len(r.callbacks()))
		}
	})
}

// The time counts from the instance's own start: what waited while all were
// stopped gets its time.
func TestUnhandledAfterCountsFromTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		first := newRig(t, shared{}, tenMinutes, subscribe.To("known", seen.handler("")))
		stop := first.startUntil()
		synctest.Wait()
		first.inject("unknown", "1", `"m"`)
		elapse(time.Second)
		stop()
		elapse(time.Hour)
		second := newRig(t, shared{first.store, first.queue}, tenMinutes, subscribe.To("known", seen.handler(""))).start()
		elapse(5 * time.Minute)
		if rec := second.record(); rec.Final {
			t.Fatal("the row is final 5 minutes after the start")
		}
		elapse(6 * time.Minute)
		if rec := second.record(); !rec.Final {
			t.Error("the row is not final 10 minutes after the start")
		}
	})
}

// Its subscription was removed: the row has a subscriber that nobody is.
func TestARowOfARemovedSubscriptionEndsAfterUnhandledAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		first := newRig(t, shared{}, func(c *subscribe.ConsumerConfig) { c.Policy.Count = 1000 },
			subscribe.To("t", func(context.Context, string) error { return subscribe.Snooze(time.Minute) }, subscribe.Name("removed")))
		stop := first.startUntil()
		first.send("t", "1", `"m"`)
		elapse(time.Second)
		stop()
		second := newRig(t, shared{first.store, first.queue}, tenMinutes, subscribe.To("t", seen.handler(""), subscribe.Name("added"))).start()
		elapse(9 * time.Minute)
		if rec := second.record(); rec.Final {
			t.Fatal("the row is final too early")
		}
		elapse(3 * time.Minute)
		if rec := second.record(); !rec.Final || rec.LastError != "no subscription takes it" || rec.Subscriber != "removed" {
			t.Errorf("row: final %t, %q", rec.Final, rec.LastError)
		}
		if len(second.callbacks()) != 1 || seen.kinds() != 0 {
			t.Errorf("%d callbacks, %d runs, want one and none", len(second.callbacks()), seen.kinds())
		}
	})
}

// Of another group: it is none of our business, however long it waits.
func TestRowsOfOtherGroupsAreLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		first := newRig(t, shared{}, tenMinutes, subscribe.To("t", func(context.Context, string) error { return subscribe.Snooze(time.Minute) }, subscribe.Group("other")))
		stop := first.startUntil()
		first.send("t", "1", `"m"`)
		elapse(time.Second)
		stop()
		second := newRig(t, shared{first.store, first.queue}, tenMinutes, subscribe.To("t", seen.handler(""))).start()
		elapse(30 * time.Minute)
		if rec := second.record(); rec.Final || len(second.callbacks()) > 0 || seen.kinds() > 0 {
			t.Errorf("the row of another group: final %t, %d callbacks, %d runs", rec.Final, len(second.callbacks()), seen.kinds())
		}
	})
}

// A backlog longer than one round adopts is old before its turn comes.
func TestAnOldBacklogThatMatchesIsHandledNotEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		old := newRig(t, shared{}, nil, subscribe.To("known", seen.handler("")))
		stop := old.startUntil()
		synctest.Wait()
		const all = 4500
		for i := range all {
			old.inject("new", fmt.Sprint(i), fmt.Sprintf(`"%d"`, i))
		}
		elapse(5 * time.Second)
		stop()
		second := newRig(t, shared{old.store, old.queue}, func(c *subscribe.ConsumerConfig) { c.UnhandledAfter = time.Second }, subscribe.To("new", seen.handler(""))).start()
		elapse(time.Minute)
		if n := len(second.callbacks()); n > 0 || seen.kinds() != all {
			t.Errorf("%d messages ended as if nobody served them, %d of %d handled", n, seen.kinds(), all)
		}
	})
}
