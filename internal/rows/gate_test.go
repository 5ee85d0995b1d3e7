package rows_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

func (o *office) claimSizes() []int {
	synctest.Wait()
	var sizes []int
	o.s.note(func() {
		for _, c := range o.s.claims {
			sizes = append(sizes, len(c))
		}
	})
	return sizes
}

func TestDelayedRowsAreClaimedByOneWriteABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.insert(150, o.keeper.Current().Number(), time.Second)
		o.admit()
		if rs := o.take(); len(rs) != 0 {
			t.Fatalf("%d rows were started before they were due", len(rs))
		}
		<-time.After(time.Second)
		o.admit()
		rs := o.take()
		if len(rs) != 150 {
			t.Fatalf("%d rows were started, want 150", len(rs))
		}
		for _, r := range rs {
			if r.Status != storage.Scheduled || o.table()[r.ID].Status != storage.Scheduled {
				t.Fatalf("a row was started as %v", r.Status)
			}
		}
		if sizes := o.claimSizes(); len(sizes) != 2 || sizes[0] != 100 {
			t.Errorf("claims of %v rows, want 100 and 50", sizes)
		}
	})
}

// TestARowThatIsGoneWhenItIsClaimedDoesNotStart: it was cancelled, or is
// another's.
func TestARowThatIsGoneWhenItIsClaimedDoesNotStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		list := o.insert(2, o.keeper.Current().Number(), time.Second)
		o.s.onClaim = func(ctx context.Context, _ []*storage.Record) error {
			_, err := o.keeper.Current().Member.(*spyMember).Member.Settle(ctx, storage.Outcome{ID: list[0], Kind: storage.Succeed, After: -1}) //nolint:forcetypeassert // every member here
			return err
		}
		<-time.After(time.Second)
		o.admit()
		rs := o.take()
		if len(rs) != 1 || rs[0].ID != list[1] {
			t.Errorf("started: %v, want %v", rs, list[1])
		}
		o.wantHand(1)
	})
}

func TestUntriedRowsOfADeadProcessStartAFewAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.orphans(10, 1)
		o.admit()
		under := o.take()
		if len(under) != 4 {
			t.Fatalf("%d rows under way, want 4", len(under))
		}
		for done := 0; len(under) > 0; done++ {
			if rec := o.table()[under[0].ID]; rec.Takeovers != 2 {
				t.Errorf("under way with takeovers %d in the table, want 2: written before the start", rec.Takeovers)
			}
			o.succeed(under[0])
			under = append(under[1:], o.take()...)
			if want := min(4, 10-done-1); len(under) != want {
				t.Fatalf("%d under way after %d, want %d", len(under), done+1, want)
			}
		}
		o.wantHand(0)
	})
}

// TestRowsOfTwoDeathsAreTriedAlone, when this process has lived for a while;
// others do not wait for them.
func TestRowsOfTwoDeathsAreTriedAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, func(cfg *rows.Config) { cfg.Probation = time.Minute })
		o.orphans(3, 2)
		o.insert(2, o.keeper.Current().Number(), 0)
		o.admit()
		if rs := o.take(); len(rs) != 2 {
			t.Fatalf("%d rows were started at once, want the two of no deaths", len(rs))
		}
		<-time.After(time.Minute)
		for range 3 {
			rs := o.take()
			if len(rs) != 1 || rs[0].Takeovers != 3 {
				t.Fatalf("%d rows are tried alone", len(rs))
			}
			<-time.After(time.Second)
			if more := o.take(); len(more) != 0 {
				t.Fatal("another one started beside it")
			}
			o.succeed(rs...)
		}
		o.wantHand(2)
		for _, rec := range o.table() {
			if rec.Takeovers != 0 {
				t.Errorf("takeovers %d after a success", rec.Takeovers)
			}
		}
	})
}

func TestFiveDeathsAreTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		id := o.orphans(1, 5)[0]
		o.admit()
		o.wantHand(0)
		if len(o.started) != 0 || len(o.called) != 1 || o.called[0].Retries != 0 {
			t.Errorf("%d starts, callbacks %v; want one callback, with no attempt counted", len(o.started), o.called)
		}
		if rec := o.table()[id]; !rec.Final || rec.Status != storage.Failed || isDue(rec) {
			t.Errorf("row: %+v", rec)
		}
	})
}

// TestGivingBackTakesTheClaimOff: a clean stop charges nothing.
func TestGivingBackTakesTheClaimOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.orphans(1, 4)
		for range 3 {
			o.admit()
			rs := o.take()
			if len(rs) != 1 || rs[0].Takeovers != 5 {
				t.Fatalf("started: %v", rs)
			}
			o.GiveBack(rs[0])
			o.wantHand(0)
			if rec := o.table()[rs[0].ID]; rec.Takeovers != 4 || rec.Final || !isDue(rec) {
				t.Fatalf("given back: takeovers %d, final %v", rec.Takeovers, rec.Final)
			}
		}
	})
}

// TestAnErrorOfTheDatabaseIsNoDeath: the claim was written, but the answer was
// lost.
func TestAnErrorOfTheDatabaseIsNoDeath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		id := o.orphans(1, 2)[0]
		failures := 0
		o.s.afterClaim = func() error {
			if failures++; failures <= 10 {
				return errors.New("connection reset")
			}
			return nil
		}
		for range 10 {
			o.admit()
			<-time.After(time.Second)
			o.wantHand(0)
		}
		if rec := o.table()[id]; rec.Final || rec.Takeovers != 2 {
			t.Errorf("after errors: final %v, takeovers %d; want 2 as before", rec.Final, rec.Takeovers)
		}
		o.admit()
		if rs := o.take(); len(rs) != 1 {
			t.Errorf("%d rows started, want 1", len(rs))
		}
	})
}

// TestRowsThatAreTriedAloneDoNotFillTheHand: what waits beyond a bound waits in
// the table.
func TestRowsThatAreTriedAloneDoNotFillTheHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, func(cfg *rows.Config) { cfg.Waiting = 5 })
		o.orphans(30, 2)
		done := 0
		o.admit()
		o.admit()
		o.wantHand(6) // one of them is under way
		for range 100 {
			rs := o.take()
			o.succeed(rs...)
			done += len(rs)
			o.admit()
		}
		o.wantHand(0)
		if done != 30 {
			t.Errorf("%d rows were tried, want 30", done)
		}
	})
}

func TestWaitingRowsLeaveUnclaimedAtDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.orphans(10, 1)
		o.admit()
		under := o.take()
		o.Drain()
		o.wantHand(len(under))
		for _, r := range under {
			o.GiveBack(r)
		}
		o.Close()
		<-o.done
		o.wantHand(0)
		for _, rec := range o.table() {
			if rec.Takeovers != 1 || !isDue(rec) {
				t.Errorf("takeovers %d, due %v", rec.Takeovers, isDue(rec))
			}
		}
	})
}
