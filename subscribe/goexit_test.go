package subscribe_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
)

// TestHandlerThatEndsItsGoroutine: as FailNow of a test does. It is a failed
// attempt, and the worker goes on.
func TestHandlerThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := running(t, func(c *subscribe.ConsumerConfig) { c.Concurrency = 1 }, subscribe.To("t", func(context.Context, string) error {
			if runs++; runs < 3 {
				runtime.Goexit()
			}
			return nil
		}))
		r.send("t", "1", `"m"`)
		synctest.Wait()
		if rec := r.record(); runs != 3 || rec.Status != storage.Succeeded || rec.Retries != 2 {
			t.Errorf("%d runs, row %+v; want success at the third", runs, rec)
		}
	})
}
