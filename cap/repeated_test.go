package cap_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
)

// A message that comes a hundred times is one row and one run in each group, for
// as long as the row is there: when it has expired and is deleted, the message is
// new again.
func TestARepeatedMessageIsNewWhenItsRowHasExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		in := func(group string) subscribe.Subscription {
			return subscribe.To("t", func(ctx context.Context, s string) error { return j.handler(ctx, group+" "+s) }, subscribe.Group(group))
		}
		r := running(t, cap.Options{SucceedMessageExpiredAfter: time.Hour, CollectorCleaningInterval: time.Minute}, in("a"), in("b"))
		deliver := func() {
			for range 100 {
				if n := r.queue.Inject(&cap.Message{ID: "1", Topic: "t", Body: []byte(`"m"`)}); n != 2 {
					t.Fatalf("%d groups take the topic, want 2", n)
				}
			}
			elapse(time.Second)
		}
		want := []string{"a m", "b m"}
		for range 3 { // until shortly before the row expires
			deliver()
			if got, rows := j.sorted(), len(r.store.Records(storage.Inbox)); !slices.Equal(got, want) || rows != 2 {
				t.Fatalf("handled %v, %d rows; want %v, and two", got, rows, want)
			}
			elapse(19 * time.Minute)
		}
		elapse(10 * time.Minute)
		if rows := len(r.store.Records(storage.Inbox)); rows != 0 {
			t.Fatalf("%d rows are left after they have expired", rows)
		}
		deliver()
		if got, rows := j.sorted(), len(r.store.Records(storage.Inbox)); !slices.Equal(got, []string{"a m", "a m", "b m", "b m"}) || rows != 2 {
			t.Errorf("handled %v, %d rows; want each once more", got, rows)
		}
	})
}
