package rows_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/capbus/gocap/internal/rows"
)

// TestCallbacksGoOnAfterOneThatEndsItsGoroutine: each is made once.
func TestCallbacksGoOnAfterOneThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, func(cfg *rows.Config) {
			made := cfg.Callback
			cfg.Callback = func(ctx context.Context, r *rows.Row) {
				made(ctx, r)
				runtime.Goexit()
			}
		})
		o.insert(5, o.keeper.Current().Number(), 0)
		o.admit()
		o.fail(o.take()...)
		o.wantHand(0)
		o.admit()
		if len(o.called) != 5 {
			t.Errorf("%d callbacks were made, want 5", len(o.called))
		}
		for _, rec := range o.table() {
			if isDue(rec) {
				t.Error("one that was made is still owed")
			}
		}
		o.shut()
	})
}

// TestCallbackThatEndsItsGoroutineAtAStopIsStillOwed, and Run ends.
func TestCallbackThatEndsItsGoroutineAtAStopIsStillOwed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, func(cfg *rows.Config) {
			cfg.Callback = func(ctx context.Context, _ *rows.Row) {
				<-ctx.Done()
				runtime.Goexit()
			}
		})
		id := o.insert(1, o.keeper.Current().Number(), 0)[0]
		o.admit()
		o.fail(o.take()...)
		synctest.Wait()
		o.Drain()
		o.endWork()
		o.Close()
		<-o.done
		o.wantHand(0)
		if rec := o.table()[id]; !rec.Final || !isDue(rec) {
			t.Errorf("final %v, owed %v; want both", rec.Final, isDue(rec))
		}
	})
}
