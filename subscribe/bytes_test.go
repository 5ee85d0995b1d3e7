package subscribe_test

import (
	"bytes"
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// TestBytesInHandAreBounded: large messages wait at the broker, or in the table,
// not in memory; all are handled in the end.
func TestBytesInHandAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 40 // of 4 MiB each
		release := make(chan struct{})
		var handled atomic.Int64
		r := running(t, func(c *subscribe.ConsumerConfig) { c.BatchSize = 4 }, subscribe.To("t", func(context.Context, *transport.Message) error {
			<-release
			handled.Add(1)
			return nil
		}))
		body := string(bytes.Repeat([]byte("x"), 4<<20))
		for i := range n {
			r.inject("t", strconv.Itoa(i), body)
		}
		elapse(10 * time.Second)
		if got := r.consumer.Hand().Len(); got > 24 {
			t.Errorf("%d messages of 4 MiB in hand, want at most 64 MiB and a delivery or two", got)
		}
		close(release)
		elapse(10 * time.Minute)
		if handled.Load() != n {
			t.Errorf("%d of %d messages handled", handled.Load(), n)
		}
	})
}

// TestAWindowOfLargeMessagesIsStored though it takes the database longer than one
// insert may: it goes in parts, in the order in which it came.
func TestAWindowOfLargeMessagesIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 30 // of a MiB each, which take a second each
		var handled atomic.Int64
		r := running(t, func(c *subscribe.ConsumerConfig) {
			c.Storage = &thinStore{memstore.New(memstore.Config{})}
		}, subscribe.To("t", func(context.Context, *transport.Message) error {
			handled.Add(1)
			return nil
		}))
		body := string(bytes.Repeat([]byte("x"), 1<<20))
		for i := range n {
			r.inject("t", strconv.Itoa(i), body)
		}
		elapse(2 * time.Minute)
		if handled.Load() != n {
			t.Errorf("%d of %d messages handled", handled.Load(), n)
		}
	})
}
