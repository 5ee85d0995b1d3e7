package rows_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/capbus/gocap/storage"
)

// TestAStopChargesNothingThoughAHandlerDoesNotReturn: what was claimed is
// released when the work is cut, and not once more by an outcome that comes
// late.
func TestAStopChargesNothingThoughAHandlerDoesNotReturn(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]func(*office){
		"never":             func(*office) {},
		"given back":        func(o *office) { o.GiveBack(o.take()[0]) },
		"given back at end": func(o *office) { o.endLast(); synctest.Wait(); o.GiveBack(o.take()[0]) },
		"succeeded at end":  func(o *office) { o.endLast(); synctest.Wait(); o.succeed(o.take()...) },
		"failed at end":     func(o *office) { o.endLast(); synctest.Wait(); o.fail(o.take()...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				id := o.orphans(1, 3)[0]
				o.admit()
				if rec := o.table()[id]; rec.Takeovers != 4 {
					t.Fatalf("takeovers %d when it runs, want 4", rec.Takeovers)
				}
				o.Drain()
				o.endWork()
				synctest.Wait()
				if rec := o.table()[id]; rec.Takeovers != 3 {
					t.Errorf("takeovers %d when it was cut, want 3 as before", rec.Takeovers)
				}
				late(o)
				synctest.Wait()
				if rec := o.table()[id]; rec.Takeovers != 3 || rec.Final || !isDue(rec) {
					t.Errorf("at the end: takeovers %d, final %v, due %v", rec.Takeovers, rec.Final, isDue(rec))
				}
			})
		})
	}
}

// TestAnOutcomeAfterTheCutIsStored: of a handler that finished all the same.
func TestAnOutcomeAfterTheCutIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		id := o.orphans(1, 3)[0]
		o.admit()
		r := o.take()[0]
		release := make(chan struct{})
		o.s.onSettle = func(context.Context, []storage.Outcome) error {
			<-release
			return nil
		}
		o.Drain()
		o.endWork()
		synctest.Wait()
		o.succeed(r)
		close(release)
		o.Close()
		<-o.done
		o.wantHand(0)
		if rec := o.table()[id]; rec.Status != storage.Succeeded || rec.Takeovers != 0 {
			t.Errorf("%v, takeovers %d; want succeeded, 0", rec.Status, rec.Takeovers)
		}
	})
}

// TestACutReleasesOnlyWhatHasNoOutcome: a batch would hold two of one row.
func TestACutReleasesOnlyWhatHasNoOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.orphans(3, 1)
		o.admit()
		rs := o.take()
		release := make(chan struct{})
		o.s.onSettle = func(context.Context, []storage.Outcome) error {
			<-release
			return nil
		}
		o.succeed(rs[0]) // is being written
		synctest.Wait()
		o.fail(rs[1]) // waits
		o.Drain()
		o.endWork()
		synctest.Wait()
		o.succeed(rs[2]) // after it was released
		close(release)
		o.Close()
		<-o.done
		o.s.note(func() {
			outcomes := 0
			for _, batch := range o.s.settles {
				seen := map[storage.ID]bool{}
				for _, x := range batch {
					outcomes++
					if seen[x.ID] {
						t.Error("two outcomes of a row in one batch")
					}
					seen[x.ID] = true
				}
			}
			if outcomes != 4 {
				t.Errorf("%d outcomes were written, want 4: one was released", outcomes)
			}
		})
	})
}
