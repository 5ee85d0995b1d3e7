package rows_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

// grouped makes an office that takes each topic for a group, with a worker that
// has taken every row which was started, unless there are none.
func grouped(t *testing.T, workers bool) *office {
	t.Helper()
	q := rows.NewQueue(unlimited)
	var o *office
	o = open(t, func(cfg *rows.Config) {
		cfg.Suspects, cfg.Probation = 2, time.Minute
		note := cfg.Start
		cfg.Start = func(r *rows.Row) {
			note(r)
			q.Add(r.Topic, r)
			if workers {
				q.Next(o.t.Context(), 1)
			}
		}
	})
	o.mark = func(rec *storage.Record) { rec.Group = rec.Topic }
	return o
}

func topics(rs []*rows.Row) map[string]int {
	n := map[string]int{}
	for _, r := range rs {
		n[r.Topic]++
	}
	return n
}

// TestRowsOfADeadProcessDoNotWaitForThoseOfAnotherSubscription, whose handlers
// may take long.
func TestRowsOfADeadProcessDoNotWaitForThoseOfAnotherSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := grouped(t, false)
		o.orphans(9, 1)
		o.admit()
		under := map[string][]*rows.Row{}
		for _, r := range o.take() {
			under[r.Topic] = append(under[r.Topic], r)
		}
		for _, topic := range []string{"topic0", "topic1", "topic2"} {
			if len(under[topic]) != 2 {
				t.Errorf("%d rows of %s were started, want 2", len(under[topic]), topic)
			}
		}
		o.succeed(under["topic0"]...)
		if n := topics(o.take()); n["topic0"] != 1 || len(n) != 1 {
			t.Errorf("started when those of topic0 had ended: %v", n)
		}
	})
}

// TestALongRunFreesItsPlace: it did not kill its process at once. A row that
// waits for a worker keeps it.
func TestALongRunFreesItsPlace(t *testing.T) {
	t.Parallel()
	for workers, want := range map[bool]int{true: 2, false: 0} {
		synctest.Test(t, func(t *testing.T) {
			o := grouped(t, workers)
			o.mark = nil // one lane
			o.orphans(10, 1)
			o.admit()
			first := o.take()
			<-time.After(time.Minute - time.Second)
			if rs := o.take(); len(first) != 2 || len(rs) != 0 {
				t.Fatalf("%d rows and %d more were started, want 2 for a minute", len(first), len(rs))
			}
			for range 3 {
				<-time.After(time.Minute)
				if rs := o.take(); len(rs) != want {
					t.Errorf("workers %t: %d rows were started after a minute, want %d", workers, len(rs), want)
				}
			}
			o.succeed(first...) // their places are not freed twice
			if rs := o.take(); len(rs) != 2-want {
				t.Errorf("workers %t: %d rows were started when the first had ended, want %d", workers, len(rs), 2-want)
			}
		})
	}
}

// TestRowsOfTwoDeathsStartOneAfterAnother, of whatever subscription: else they
// would be charged with each other's deaths. A long one holds up the others for
// a while only.
func TestRowsOfTwoDeathsStartOneAfterAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		o := grouped(t, true)
		o.orphans(6, 2)
		o.admit()
		<-time.After(time.Minute - time.Since(begun))
		for i := range 6 {
			if rs := o.take(); len(rs) != 1 {
				t.Fatalf("minute %d: %d rows are tried, want one", i, len(rs))
			}
			<-time.After(time.Minute - time.Second)
			if rs := o.take(); len(rs) != 0 {
				t.Fatalf("minute %d: %d more were started beside it", i, len(rs))
			}
			<-time.After(time.Second)
		}
		o.wantHand(6)
	})
}

// TestRowsTriedAloneWaitForNoWorkerOfOthers: but of each subscription one at
// most waits so.
func TestRowsTriedAloneWaitForNoWorkerOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := grouped(t, false)
		o.orphans(9, 2)
		o.admit()
		<-time.After(10 * time.Minute)
		rs := o.take()
		if n := topics(rs); n["topic0"] != 1 || n["topic1"] != 1 || n["topic2"] != 1 {
			t.Errorf("started in ten minutes: %v, want one of each", n)
		}
		for _, rec := range o.table() {
			if rec.Takeovers != 2 {
				rs = rs[1:]
			}
		}
		if len(rs) != 0 {
			t.Errorf("%d rows were started uncharged", len(rs))
		}
	})
}

// TestRowsTriedAloneAreBoundedForEachSubscription: those of one do not keep the
// others out.
func TestRowsTriedAloneAreBoundedForEachSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, func(cfg *rows.Config) { cfg.Waiting, cfg.Probation = 3, time.Hour })
		o.mark = func(rec *storage.Record) { rec.Group = rec.Topic }
		o.orphans(30, 2)
		o.admit()
		o.wantHand(9)
	})
}

// TestOwedCallbacksDoNotHoldUpHandlers: they wait for one another.
func TestOwedCallbacksDoNotHoldUpHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, func(cfg *rows.Config) {
			cfg.Probation = time.Hour
			cfg.Callback = func(ctx context.Context, _ *rows.Row) { <-ctx.Done() }
		})
		for range 6 {
			o.owed(1)
		}
		o.admit()
		o.orphans(10, 1)
		o.admit()
		if rs := o.take(); len(rs) != 4 {
			t.Errorf("%d rows of a dead process started, want 4", len(rs))
		}
	})
}
