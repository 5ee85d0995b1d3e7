package processor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
)

// TestOneSlowScanPutsOffNoOther: a look that took long once, such as one that
// waited for a lock, does not put off the next ones.
func TestOneSlowScanPutsOffNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newTaker(t, 100, func(cfg *processor.NeedRetryConfig) { cfg.PollInterval = time.Second })
		var slow atomic.Bool
		k.fail(func(context.Context, storage.Query) error {
			if slow.CompareAndSwap(true, false) {
				<-time.After(5 * time.Second)
			}
			return nil
		})
		k.run()
		<-time.After(10 * time.Second)
		slow.Store(true)
		<-time.After(7 * time.Second) // the slow one is over
		if slow.Load() {
			t.Fatal("there was no look")
		}
		k.seen() // those before
		<-time.After(5 * time.Second)
		if n := len(k.seen()); n < 4 {
			t.Errorf("%d looks in 5 s after a slow one, want one a second", n)
		}
	})
}
