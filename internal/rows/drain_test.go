package rows_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

func TestNothingStartsAfterDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.insert(5, o.keeper.Current().Number(), 0)
		o.insert(5, o.keeper.Current().Number(), time.Millisecond)
		o.orphans(5, 1)
		o.Drain()
		if !o.Draining() {
			t.Error("not draining after Drain")
		}
		o.admit()
		if rs := o.take(); len(rs) != 0 {
			t.Errorf("%d rows were started after Drain", len(rs))
		}
		o.wantHand(0)
		o.Close()
		<-o.done
	})
}

// TestRetryAtOnceDoesNotStartAfterDrain: the failure is stored, the next
// attempt is somebody else's.
func TestRetryAtOnceDoesNotStartAfterDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		id := o.insert(1, o.keeper.Current().Number(), 0)[0]
		o.admit()
		r := o.take()[0]
		o.Drain()
		o.Settle(r, o.policy().Failed(r.Record, "boom", false, 0))
		if rs := o.take(); len(rs) != 0 {
			t.Error("it was started after Drain")
		}
		o.wantHand(0)
		if rec := o.table()[id]; rec.Retries != 1 || !isDue(rec) {
			t.Errorf("%d retries stored, due %v", rec.Retries, isDue(rec))
		}
		o.Close()
		<-o.done
	})
}

// TestCloseStoresWhatWasGiven: all outcomes are written before Run returns.
func TestCloseStoresWhatWasGiven(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.s.onSettle = func(context.Context, []storage.Outcome) error {
			<-time.After(100 * time.Millisecond)
			return nil
		}
		o.insert(300, o.keeper.Current().Number(), 0)
		o.admit()
		o.succeed(o.take()...)
		o.shut()
		for _, rec := range o.table() {
			if rec.Status != storage.Succeeded {
				t.Fatalf("row %v is %v after Run", rec.ID, rec.Status)
			}
		}
		o.wantHand(0)
	})
}

// TestOutcomesOfWorkThatWasCutAreStored: what was under way ends when its
// context does, and says so afterwards.
func TestOutcomesOfWorkThatWasCutAreStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		released := o.orphans(1, 1)[0]
		sent := o.insert(1, o.keeper.Current().Number(), 0)[0]
		o.admit()
		rs := o.take()
		o.Drain()
		o.endWork()
		synctest.Wait()
		for _, r := range rs {
			if r.ID == sent {
				o.succeed(r)
			} else {
				o.GiveBack(r)
			}
		}
		o.Close()
		<-o.done
		if rec := o.table()[sent]; rec.Status != storage.Succeeded {
			t.Errorf("what was sent is %v: it will be sent again", rec.Status)
		}
		if rec := o.table()[released]; rec.Takeovers != 1 {
			t.Errorf("a clean stop was charged: takeovers %d", rec.Takeovers)
		}
		o.wantHand(0)
	})
}

// TestRunEndsThoughNothingCanBeStored: when the last context does.
func TestRunEndsThoughNothingCanBeStored(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(context.Context, []storage.Outcome) error{
		"errors": func(context.Context, []storage.Outcome) error { return errAway },
		"hangs":  func(ctx context.Context, _ []storage.Outcome) error { return hang(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				o.s.onSettle = settle
				o.insert(250, o.keeper.Current().Number(), 0)
				o.admit()
				o.succeed(o.take()...)
				o.Drain()
				o.Close()
				<-time.After(time.Second)
				begun := time.Now()
				o.endWork()
				o.endLast()
				<-o.done
				if d := time.Since(begun); d > 0 {
					t.Errorf("Run returned %s after its last context", d)
				}
				o.wantHand(0)
			})
		})
	}
}

// TestAnOutcomeThatComesTooLateLeavesNothingInHand: of a handler that did not
// return when its context ended, or of a look that was under way.
func TestAnOutcomeThatComesTooLateLeavesNothingInHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.insert(2, o.keeper.Current().Number(), 0)
		o.admit()
		rs := o.take()
		o.shut()
		o.succeed(rs[0])
		o.fail(rs[1])
		o.Admit(o.keeper.Current(), false, &storage.Record{ID: storage.ID{1}, Takeovers: 5})
		o.wantHand(0)
		if len(o.called) != 0 {
			t.Error("a callback was made for what was not stored")
		}
	})
}

// TestDrainInTheMidstOfWork: whatever happens then, Run returns, nothing stays
// in hand, and every row is either finished or due.
func TestDrainInTheMidstOfWork(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // repeatable on purpose
			work := make(chan *rows.Row, 1000)
			o := open(t, func(cfg *rows.Config) { cfg.Start = func(r *rows.Row) { work <- r } })
			o.orphans(20, 1)
			o.orphans(5, 2)
			o.insert(100, o.keeper.Current().Number(), 0)
			o.insert(20, o.keeper.Current().Number(), time.Millisecond)
			<-time.After(time.Second)
			var workers sync.WaitGroup
			kinds := make(chan int, 1000)
			for range cap(kinds) {
				kinds <- rng.IntN(4)
			}
			stop := make(chan struct{})
			for range 8 {
				workers.Go(func() { o.work(work, stop, kinds) })
			}
			o.admit()
			<-time.After(time.Duration(rng.IntN(20)) * time.Millisecond)
			o.Drain()
			close(stop)
			workers.Wait()
			for len(work) > 0 {
				o.GiveBack(<-work)
			}
			o.Close()
			<-o.done
			o.wantHand(0)
			for _, rec := range o.table() {
				if rec.Status == storage.Succeeded == isDue(rec) {
					t.Errorf("seed %d: row %v is %v, due %v", seed, rec.ID, rec.Status, isDue(rec))
				}
			}
		})
	}
}

// work ends rows in one way or another.
func (o *office) work(in <-chan *rows.Row, stop <-chan struct{}, kinds <-chan int) {
	for {
		select {
		case <-stop:
			return
		case r := <-in:
			<-time.After(time.Millisecond)
			switch <-kinds {
			case 0:
				o.succeed(r)
			case 1:
				o.Settle(r, storage.Outcome{ID: r.ID, Kind: storage.Retry, Attempt: r.Retries + 1, Error: "boom"})
			case 2:
				o.GiveBack(r)
			default:
				o.Settle(r, storage.Outcome{ID: r.ID, Kind: storage.Postpone, After: time.Minute})
			}
		}
	}
}
