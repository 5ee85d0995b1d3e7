package cap_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/subscribe"
)

// TestSlowGroupHoldsUpNoOther: a topic whose consumers are slow, with a backlog
// over the whole window, does not hold up the messages of another.
func TestSlowGroupHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]time.Duration{"slow": time.Second, "hung": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				end := make(chan struct{})
				quick := newJournal()
				r := running(t, cap.Options{Concurrency: 2},
					subscribe.To("slow", func(context.Context, string) error {
						select {
						case <-time.After(limit):
						case <-end:
						}
						return nil
					}, subscribe.Group("slow")),
					subscribe.To("quick", quick.handler, subscribe.Group("quick")))
				for i := range 6000 {
					if err := r.Publish(t.Context(), cap.NoTx, "slow", fmt.Sprint(i)); err != nil {
						t.Fatal(err)
					}
				}
				elapse(5 * time.Second)
				begun := time.Now()
				for i := range 10 {
					if err := r.Publish(t.Context(), cap.NoTx, "quick", fmt.Sprint(i)); err != nil {
						t.Fatal(err)
					}
				}
				for time.Since(begun) < time.Hour && len(quick.all()) < 10 {
					elapse(100 * time.Millisecond)
				}
				if took := time.Since(begun); took > 2*time.Second {
					t.Errorf("%d of 10 messages of the other topic were handled after %s", len(quick.all()), took)
				}
				close(end)
			})
		})
	}
}
