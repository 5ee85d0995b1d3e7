package subscribe_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
)

// A message whose process has died is suspected until it has an outcome. Snooze
// is one: it clears the message of it, and counts nothing.
func TestSnoozeClearsARowOfADeadInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs, before atomic.Int32
		var r *rig
		r = newRig(t, shared{}, nil, subscribe.To("t", func(context.Context, string) error {
			if runs.Add(1) == 1 {
				before.Store(int32(r.record().Takeovers)) //nolint:gosec // 5 at most
				return subscribe.Snooze(time.Minute)
			}
			return nil
		}))
		dead, err := r.store.Join(t.Context(), storage.Instance{Box: storage.Inbox, Version: "v1", Lease: 15 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		rec := &storage.Record{ID: ids.New(), Version: "v1", Group: "test", Subscriber: "t", Topic: "t", MessageID: "1", Body: []byte(`"m"`)}
		if _, err := dead.Accept(t.Context(), rec); err != nil { // and it is never heard of again
			t.Fatal(err)
		}
		r.start()
		elapse(30 * time.Second)
		if got := r.record(); runs.Load() != 1 || before.Load() < 1 || got.Takeovers != 0 || got.Retries != 0 || got.Final || got.Status != storage.Scheduled {
			t.Errorf("after Snooze: %d runs, takeovers %d then %d, %d failed attempts, %v", runs.Load(), before.Load(), got.Takeovers, got.Retries, got.Status)
		}
		elapse(time.Minute)
		if got := r.record(); runs.Load() != 2 || got.Status != storage.Succeeded || got.Retries != 0 {
			t.Errorf("at last: %d runs, %v, %d failed attempts", runs.Load(), got.Status, got.Retries)
		}
	})
}
