package rows_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

func TestOutcomesAreStoredInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		release := make(chan struct{})
		o.s.onSettle = func(context.Context, []storage.Outcome) error {
			<-release
			return nil
		}
		o.insert(251, o.keeper.Current().Number(), 0)
		o.admit()
		rs := o.take()
		o.succeed(rs[0])
		synctest.Wait()
		o.succeed(rs[1:]...) // while the first one is written
		close(release)
		o.wantHand(0)
		var sizes []int
		o.s.note(func() {
			for _, b := range o.s.settles {
				sizes = append(sizes, len(b))
			}
		})
		if len(sizes) != 4 || sizes[0] != 1 || sizes[1] != 100 || sizes[2] != 100 || sizes[3] != 50 {
			t.Errorf("batches of %v, want 1, 100, 100, 50", sizes)
		}
		for _, rec := range o.table() {
			if rec.Status != storage.Succeeded || isDue(rec) {
				t.Fatalf("row %v: %v, due %v", rec.ID, rec.Status, rec.Position.DueAt)
			}
		}
		if o.freed != 251 {
			t.Errorf("%d rows were told to be free, want 251", o.freed)
		}
	})
}

// TestOutcomesThatCannotBeStoredAreTriedAgain: the row stays in hand, the
// database is not flooded, and neither is the log.
func TestOutcomesThatCannotBeStoredAreTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		begun := time.Now()
		o.s.onSettle = func(context.Context, []storage.Outcome) error {
			if time.Since(begun) < time.Minute {
				return errAway
			}
			return nil
		}
		o.insert(5, o.keeper.Current().Number(), 0)
		o.admit()
		o.succeed(o.take()...)
		<-time.After(59 * time.Second)
		o.wantHand(5)
		o.s.note(func() {
			if n := len(o.s.settles); n < 50 || n > 150 {
				t.Errorf("%d writes in a minute of failures", n)
			}
		})
		if n := o.log.count(); n < 1 || n > 7 {
			t.Errorf("%d lines in a minute of failures", n)
		}
		<-time.After(3 * time.Second)
		o.wantHand(0)
	})
}

// TestAWriteThatHangsIsGivenUpAndTriedAgain: a connection that is dead without
// telling must not stall all outcomes.
func TestAWriteThatHangsIsGivenUpAndTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		tries := 0
		o.s.onSettle = func(ctx context.Context, _ []storage.Outcome) error {
			if tries++; tries == 1 {
				return hang(ctx)
			}
			return nil
		}
		o.insert(1, o.keeper.Current().Number(), 0)
		o.admit()
		o.succeed(o.take()...)
		<-time.After(11 * time.Second)
		o.wantHand(0)
	})
}

// TestARowThatSomebodyHasLockedHoldsUpNoOther: its outcome is stored when it is
// free, those of the others at once, and in batches.
func TestARowThatSomebodyHasLockedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		ids := o.insert(60, o.keeper.Current().Number(), 0)
		begun := time.Now()
		o.s.onSettle = func(ctx context.Context, outcomes []storage.Outcome) error {
			for _, x := range outcomes {
				if x.ID == ids[7] && time.Since(begun) < time.Hour {
					return hang(ctx)
				}
			}
			return nil
		}
		o.admit()
		rs := o.take()
		o.succeed(rs[:30]...)
		<-time.After(11 * time.Second)
		o.succeed(rs[30:]...)
		<-time.After(20 * time.Second)
		o.wantHand(1)
		<-time.After(time.Hour)
		o.wantHand(0)
	})
}

func TestOutcomesUnderALostNumberAreGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.s.onSettle = func(context.Context, []storage.Outcome) error { return errAway }
		o.insert(1, o.keeper.Current().Number(), 0)
		o.admit()
		o.lose()
		o.succeed(o.take()...)
		<-time.After(2 * time.Second)
		o.wantHand(0)
		o.s.note(func() {
			if len(o.s.settles) != 1 {
				t.Errorf("%d writes under a number that is over, want one try", len(o.s.settles))
			}
		})
	})
}

func TestARowThatAnotherHasLeavesTheHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		list := o.insert(2, o.keeper.Current().Number(), 0)
		o.admit()
		rs := o.take()
		o.succeed(rs[0], rs[0]) // the second time it is final already
		o.Settle(rs[1], o.policy().Failed(rs[1].Record, "boom", true, -1))
		o.wantHand(0)
		if rec := o.table()[list[0]]; rec.Status != storage.Succeeded {
			t.Errorf("row is %v", rec.Status)
		}
	})
}

// TestARetryAtOnceStartsWhenTheFailureIsStored: in the same hands, so that no
// look starts it too, and as it now stands in the table.
func TestARetryAtOnceStartsWhenTheFailureIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		release := make(chan struct{})
		o.s.onSettle = func(context.Context, []storage.Outcome) error {
			<-release
			return nil
		}
		id := o.insert(1, o.keeper.Current().Number(), 0)[0]
		o.admit()
		first := o.take()[0]
		o.Settle(first, o.policy().Failed(first.Record, "boom", false, 0))
		if again := o.take(); len(again) != 0 {
			t.Fatal("the next attempt began before the failure was stored")
		}
		close(release)
		again := o.take()
		if len(again) != 1 || again[0].Retries != 1 || again[0].Status != storage.Failed || again[0].LastError != "boom" {
			t.Fatalf("second attempt: %+v", again)
		}
		o.wantHand(1)
		o.admit()
		if twice := o.take(); len(twice) != 0 {
			t.Error("a look started it too")
		}
		o.succeed(again...)
		o.wantHand(0)
		if rec := o.table()[id]; rec.Retries != 1 || rec.Status != storage.Succeeded {
			t.Errorf("row: %d retries, %v", rec.Retries, rec.Status)
		}
	})
}

func TestARetryThatWaitsLeavesTheHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.insert(2, o.keeper.Current().Number(), 0)
		o.admit()
		rs := o.take()
		o.Settle(rs[0], o.policy().Failed(rs[0].Record, "boom", false, time.Millisecond))
		o.Settle(rs[1], storage.Outcome{ID: rs[1].ID, Kind: storage.Postpone, After: 5 * time.Second})
		o.wantHand(0)
		o.note(func() {
			if len(o.later) != 2 || o.later[0] != time.Millisecond || o.later[1] != 5*time.Second {
				t.Errorf("told to be due in %v", o.later)
			}
		})
		<-time.After(time.Millisecond)
		o.admit()
		if again := o.take(); len(again) != 1 || again[0].Retries != 1 {
			t.Errorf("after a millisecond %d rows were started", len(again))
		}
	})
}

// TestNothingStartsUnderALostNumber: what is admitted then goes back, untried.
func TestNothingStartsUnderALostNumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		old := o.keeper.Current()
		o.insert(3, old.Number(), 0)
		recs, _, err := old.Due(t.Context(), storage.Query{Lanes: []storage.Lane{{Limit: 10}}})
		if err != nil {
			t.Fatal(err)
		}
		o.lose()
		look := o.Hand.Begin()
		for _, rec := range recs {
			look.Take(rec.ID)
		}
		look.End()
		o.Admit(old, false, recs...)
		o.wantHand(0)
		if rs := o.take(); len(rs) != 0 {
			t.Errorf("%d rows were started", len(rs))
		}
	})
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	p := rows.Policy{Count: 5, Interval: time.Minute, Immediate: 2, KeepFailed: time.Hour, OweCallback: true}
	grows := p
	grows.Backoff = func(attempt int) time.Duration { return time.Duration(attempt-2) * time.Second }
	for _, c := range []struct {
		name      string
		policy    rows.Policy
		retries   int
		permanent bool
		wait      time.Duration
		kind      storage.OutcomeKind
		after     time.Duration
	}{
		{"first failure", p, 0, false, -1, storage.Retry, 0},
		{"second failure", p, 1, false, -1, storage.Retry, 0},
		{"third failure waits", p, 2, false, -1, storage.Retry, time.Minute},
		{"the handler's wish", p, 0, false, 3 * time.Second, storage.Retry, 3 * time.Second},
		{"last attempt", p, 4, false, -1, storage.Fail, time.Hour},
		{"the wish does not lift the limit", p, 4, false, time.Second, storage.Fail, time.Hour},
		{"permanent", p, 0, true, -1, storage.Fail, time.Hour},
		{"own backoff, never negative", grows, 0, false, -1, storage.Retry, 0},
		{"own backoff", grows, 3, false, -1, storage.Retry, 2 * time.Second},
	} {
		o := c.policy.Failed(&storage.Record{Retries: c.retries}, "boom", c.permanent, c.wait)
		if o.Kind != c.kind || o.After != c.after || o.Attempt != c.retries+1 || o.Error != "boom" || o.Callback != (c.kind == storage.Fail) {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

func (o *office) policy() rows.Policy {
	return rows.Policy{Count: 3, Interval: time.Minute, KeepFailed: time.Hour, OweCallback: true}
}
