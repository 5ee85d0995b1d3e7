package rows_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

// owed inserts a row that failed for good and owes a callback, during which so
// many processes died.
func (o *office) owed(deaths int) {
	o.t.Helper()
	for death := range deaths {
		m, err := o.s.Store.Join(o.t.Context(), storage.Instance{Box: storage.Outbox, Version: "v1", Lease: time.Second})
		if err != nil {
			o.t.Fatal(err)
		}
		if death == 0 {
			id := o.insert(1, m.Number(), 0)[0]
			if lost, err := m.Settle(o.t.Context(), storage.Outcome{ID: id, Kind: storage.Fail, After: time.Hour, Callback: true, Error: "boom"}); err != nil || len(lost) > 0 {
				o.t.Fatal(lost, err)
			}
		} else {
			recs, err := m.TakeOver(o.t.Context(), storage.Query{Lanes: []storage.Lane{{Limit: 10}}})
			if err == nil {
				recs, err = m.Claim(o.t.Context(), recs...)
			}
			if err != nil || len(recs) != 1 {
				o.t.Fatalf("death %d: %d rows claimed, %v", death, len(recs), err)
			}
		}
		<-time.After(2 * time.Second)
	}
}

// TestCallbackThatKillsItsProcess is not made for ever.
func TestCallbackThatKillsItsProcess(t *testing.T) {
	t.Parallel()
	for deaths, calls := range map[int]int{1: 1, 4: 1, 5: 0} {
		synctest.Test(t, func(t *testing.T) {
			o := open(t, nil)
			o.owed(deaths)
			o.admit()
			<-time.After(time.Minute)
			o.wantHand(0)
			if len(o.called) != calls || len(o.started) != 0 {
				t.Errorf("after %d deaths: %d callbacks and %d starts, want %d and none", deaths, len(o.called), len(o.started), calls)
			}
			for _, rec := range o.table() {
				if !rec.Final || isDue(rec) {
					t.Errorf("after %d deaths the row is left as %+v", deaths, rec)
				}
			}
		})
	}
}

// TestCallbackThatAStopCutsIsStillOwed: whether it did its work is not known.
func TestCallbackThatAStopCutsIsStillOwed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, func(cfg *rows.Config) { cfg.Callback = func(ctx context.Context, _ *rows.Row) { <-ctx.Done() } })
		id := o.insert(1, o.keeper.Current().Number(), 0)[0]
		o.admit()
		o.fail(o.take()...)
		synctest.Wait()
		o.Drain()
		o.endWork()
		synctest.Wait()
		if rec := o.table()[id]; !rec.Final || !isDue(rec) {
			t.Errorf("final %v, owed %v; want both", rec.Final, isDue(rec))
		}
	})
}
