package subscribe_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
)

type pointerError struct{ text string }

func (e *pointerError) Error() string { return e.text }

// TestErrorThatPanics: as a nil pointer in an error does. It is a failed
// attempt, and the process lives.
func TestErrorThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := running(t, func(c *subscribe.ConsumerConfig) { c.Policy.Count = 1 }, subscribe.To("t", func(context.Context, string) error {
			var err *pointerError
			return err
		}))
		r.send("t", "1", `"m"`)
		synctest.Wait()
		if rec := r.record(); rec.Status != storage.Failed || rec.Retries != 1 {
			t.Errorf("row %+v, want one failed attempt", rec)
		}
	})
}
