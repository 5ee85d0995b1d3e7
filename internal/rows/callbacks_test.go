package rows_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

func (o *office) fail(rs ...*rows.Row) {
	for _, r := range rs {
		o.Settle(r, o.policy().Failed(r.Record, "boom", true, -1))
	}
}

// blocking lets callbacks wait until release is closed.
func blocking(release chan struct{}) func(*rows.Config) {
	return func(cfg *rows.Config) {
		made := cfg.Callback
		cfg.Callback = func(ctx context.Context, r *rows.Row) {
			made(ctx, r)
			<-release
		}
	}
}

// TestCallbackIsMadeOnceWhenTheFailureIsStored: with the row as it ended.
func TestCallbackIsMadeOnceWhenTheFailureIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := open(t, blocking(release))
		id := o.insert(1, o.keeper.Current().Number(), 0)[0]
		o.admit()
		stored := make(chan struct{})
		o.s.onSettle = func(context.Context, []storage.Outcome) error {
			<-stored
			return nil
		}
		o.fail(o.take()...)
		synctest.Wait()
		o.note(func() {
			if len(o.called) != 0 {
				t.Error("the callback was made before the failure was stored")
			}
		})
		close(stored)
		o.admit() // while it runs
		o.wantHand(1)
		if rec := o.table()[id]; !rec.Final || !isDue(rec) {
			t.Errorf("while the callback runs: final %v, due %v; want both", rec.Final, isDue(rec))
		}
		close(release)
		o.wantHand(0)
		o.admit()
		o.note(func() {
			if len(o.called) != 1 {
				t.Fatalf("%d callbacks, want 1", len(o.called))
			}
			if rec := o.called[0]; !rec.Final || rec.Retries != 1 || rec.LastError != "boom" || rec.Status != storage.Failed {
				t.Errorf("the callback got %+v", rec)
			}
		})
		if rec := o.table()[id]; !rec.Final || isDue(rec) {
			t.Errorf("afterwards: final %v, due %v", rec.Final, isDue(rec))
		}
	})
}

func TestNoCallbackForARowThatAnotherHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.insert(1, o.keeper.Current().Number(), 0)
		o.admit()
		r := o.take()[0]
		o.succeed(r)
		synctest.Wait()
		o.fail(r) // final already: lost
		o.wantHand(0)
		if len(o.called) != 0 {
			t.Error("a callback was made for a failure that was not stored")
		}
	})
}

// TestCallbackThatIsOwedIsMadeByWhoFindsTheRow: its process died before.
func TestCallbackThatIsOwedIsMadeByWhoFindsTheRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		dead, err := o.s.Store.Join(t.Context(), storage.Instance{Box: storage.Outbox, Version: "v1", Lease: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		id := o.insert(1, dead.Number(), 0)[0]
		if _, err := dead.Settle(t.Context(), o.policy().Final(&storage.Record{ID: id}, "boom", true)); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Second)
		o.admit()
		o.wantHand(0)
		if len(o.called) != 1 || o.called[0].ID != id || len(o.started) != 0 {
			t.Errorf("%d callbacks, %d starts", len(o.called), len(o.started))
		}
	})
}

// TestOwedCallbackIsTakenOffWhereNoneIsConfigured: the row would be due for ever.
func TestOwedCallbackIsTakenOffWhereNoneIsConfigured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, func(cfg *rows.Config) { cfg.Callback = nil })
		id := o.insert(1, o.keeper.Current().Number(), 0)[0]
		if _, err := o.keeper.Current().Settle(t.Context(), o.policy().Final(&storage.Record{ID: id}, "boom", true)); err != nil {
			t.Fatal(err)
		}
		o.admit()
		o.wantHand(0)
		if rec := o.table()[id]; isDue(rec) || !rec.Final {
			t.Errorf("due %v, final %v", isDue(rec), rec.Final)
		}
	})
}

// TestDrainLeavesCallbacksThatWait, and the one that runs is recorded all the
// same: it must not be made again.
func TestDrainLeavesCallbacksThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := open(t, blocking(release))
		o.insert(3, o.keeper.Current().Number(), 0)
		o.admit()
		o.fail(o.take()...)
		o.wantHand(3)
		o.Drain()
		o.wantHand(1)
		o.Close()
		close(release)
		<-o.done
		o.wantHand(0)
		if len(o.called) != 1 {
			t.Fatalf("%d callbacks were made, want the one that ran", len(o.called))
		}
		for id, rec := range o.table() {
			if made := id == o.called[0].ID; isDue(rec) == made {
				t.Errorf("row %v: callback made %v, still due %v", id, made, isDue(rec))
			}
		}
	})
}

// TestSlowCallbacksDoNotFillTheHand: what waits beyond a bound waits in the
// table, where it is found again.
func TestSlowCallbacksDoNotFillTheHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := open(t, func(cfg *rows.Config) {
			blocking(release)(cfg)
			cfg.Waiting = 10
		})
		o.insert(200, o.keeper.Current().Number(), 0)
		o.admit()
		o.fail(o.take()...)
		for range 3 {
			synctest.Wait()
			o.admit()
		}
		o.wantHand(11) // one of them is being made
		close(release)
		for range 30 {
			o.admit()
		}
		o.wantHand(0)
		made := map[storage.ID]int{}
		for _, rec := range o.called {
			made[rec.ID]++
		}
		if len(made) != 200 || len(o.called) != 200 {
			t.Errorf("%d callbacks for %d rows, want one for each of 200", len(o.called), len(made))
		}
	})
}

// TestCallbackOfARowThatNoLookFindsIsNeverPutOff: a message that cannot be
// handled belongs to a group, but to no subscription.
func TestCallbackOfARowThatNoLookFindsIsNeverPutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := open(t, func(cfg *rows.Config) {
			blocking(release)(cfg)
			cfg.Waiting = 2
		})
		for i := range 10 {
			rec := &storage.Record{ID: storage.ID{byte(i)}, Group: "g", Final: true, Status: storage.Failed}
			o.Hand.Hold(rec.ID)
			o.Admit(o.keeper.Current(), true, rec)
		}
		o.wantHand(10)
		close(release)
		o.wantHand(0)
		if len(o.called) != 10 {
			t.Errorf("%d callbacks, want 10", len(o.called))
		}
	})
}
