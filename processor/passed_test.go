package processor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// TestRowPassedWhileInHand: on a slow database a row can be due again before the
// write that says so has returned. A look that passes it then must not make it
// wait for the next scan from the start.
func TestRowPassedWhileInHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newTaker(t, 100, func(c *processor.NeedRetryConfig) { c.PollInterval = time.Hour })
		k.publish(1, "slow")
		k.run()
		synctest.Wait()
		slow := k.take()
		if len(slow) != 1 {
			t.Fatalf("%d rows, want one", len(slow))
		}
		retry := storage.Outcome{ID: slow[0].ID, Kind: storage.Retry, After: 10 * time.Millisecond}
		if _, err := k.keeper.Current().Settle(t.Context(), retry); err != nil {
			t.Fatal(err)
		}
		<-time.After(20 * time.Millisecond) // due again, and still in hand
		k.publish(1, "quick")
		k.retry.Kick()
		<-time.After(time.Minute)
		if got := k.take(); len(got) != 1 || got[0].Topic != "quick" {
			t.Fatalf("%d rows, want the quick one", len(got))
		}
		k.retry.Later(retry.After, k.hand.LeaveDue(slow[0].ID))
		<-time.After(time.Minute)
		if got := k.take(); len(got) != 1 || got[0].ID != slow[0].ID {
			t.Errorf("%d rows, want the one that was passed", len(got))
		}
	})
}

// TestRowsThatFailForAWhileAskForNoScans: they are not due before the cursor,
// however often a look has passed them.
func TestRowsThatFailForAWhileAskForNoScans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, func(cfg *processor.DispatcherConfig) { cfg.BatchSize, cfg.Policy.Interval = 20, time.Minute })
		s.b.answer = func(context.Context, *transport.Message) error {
			<-time.After(10 * time.Millisecond)
			return transport.ErrRejected
		}
		s.publish(2000, "a")
		s.start()
		<-time.After(10 * time.Second)
		scans := 0
		for _, l := range s.seen() {
			if l.takeOver {
				scans++
			}
		}
		if scans > 12 {
			t.Errorf("%d scans in 10 s, want one a second", scans)
		}
	})
}
