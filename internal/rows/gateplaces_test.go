package rows_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

// wantSuspects says that rows of a dead process start, so many at once, and
// that callbacks which were not made have not been charged.
func (o *office) wantSuspects(n int) {
	o.t.Helper()
	for _, rec := range o.table() {
		if rec.Final && isDue(rec) && rec.Takeovers > 1 {
			o.t.Errorf("a callback that was not made was charged: takeovers %d", rec.Takeovers)
		}
	}
	o.take()
	o.orphans(10, 1)
	o.admit()
	if rs := o.take(); len(rs) != n {
		o.t.Errorf("%d rows of a dead process started, want %d", len(rs), n)
	}
}

// TestOwedCallbacksThatArePutOffKeepNoPlace: of rows that were claimed, too,
// and found the queue full.
func TestOwedCallbacksThatArePutOffKeepNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		o := open(t, func(cfg *rows.Config) {
			blocking(release)(cfg)
			cfg.Waiting = 1
		})
		o.insert(2, o.keeper.Current().Number(), 0)
		o.admit()
		o.fail(o.take()...)
		for range 6 {
			o.owed(1)
			o.admit()
		}
		o.wantHand(2)
		o.wantSuspects(4)
	})
}

// TestCallbacksOfALostNumberKeepNoPlace, whether they wait or run.
func TestCallbacksOfALostNumberKeepNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := open(t, blocking(release))
		for range 4 {
			o.owed(1)
		}
		o.admit()
		o.wantHand(4)
		o.lose()
		close(release)
		o.wantHand(0)
		o.wantSuspects(4)
	})
}

// TestClaimedCallbacksThatDrainLeavesAreNotCharged: they waited when it came.
func TestClaimedCallbacksThatDrainLeavesAreNotCharged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := open(t, blocking(release))
		for range 3 {
			o.owed(1)
		}
		o.admit()
		o.Drain()
		o.wantHand(1)
		close(release)
		o.Close()
		<-o.done
		o.wantHand(0)
		waiting := 0
		for _, rec := range o.table() {
			if isDue(rec) {
				waiting++
				if rec.Takeovers != 1 {
					t.Errorf("charged: takeovers %d", rec.Takeovers)
				}
			}
		}
		if waiting != 2 {
			t.Errorf("%d callbacks are owed, want 2", waiting)
		}
	})
}

// TestAnOutcomeThatIsNotStoredKeepsNoPlace: the number was lost.
func TestAnOutcomeThatIsNotStoredKeepsNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.orphans(4, 1)
		o.admit()
		rs := o.take()
		o.lose()
		for i, r := range rs {
			switch i {
			case 0:
				o.succeed(r)
			case 1:
				o.fail(r)
			case 2:
				o.GiveBack(r)
			default:
				o.Settle(r, storage.Outcome{ID: r.ID, Kind: storage.Retry, After: time.Minute})
			}
		}
		o.wantHand(0)
		o.wantSuspects(4)
	})
}
