package captest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/cap/captest"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// sly lets whoever looks at what is due see an empty outbox, and then an empty
// inbox: it waits until the outbox is sent, and lets a handler run, which
// publishes, before the inbox is read.
type sly struct {
	*memstore.Store

	run chan struct{}
}

func (s *sly) List(ctx context.Context, f storage.Filter, p storage.Page) (storage.Listing, error) {
	if len(f.States) > 0 {
		if f.Box == storage.Inbox && s.unfinished(f.Box) {
			s.run <- struct{}{}
		}
		for s.unfinished(f.Box) {
			<-time.After(time.Millisecond)
		}
	}
	return s.Store.List(ctx, f, p)
}

func (s *sly) unfinished(box storage.Box) bool {
	for _, r := range s.Records(box) {
		if !r.Final {
			return true
		}
	}
	return false
}

// Two looks that find nothing due may both have missed what goes round.
func TestDrainIsNotFooledByWhatGoesRound(t *testing.T) {
	t.Parallel()
	const links = 6
	store := &sly{memstore.New(memstore.Config{}), make(chan struct{})}
	queue := memqueue.New(memqueue.Config{})
	queue.SetFaults(memqueue.Faults{SendDelay: 100 * time.Millisecond}) // meanwhile it is in the outbox alone
	var handled atomic.Int32
	bus := captest.NewWith(t, func(o *cap.Options) { o.Storage, o.Transport = store, queue },
		subscribe.To("link", func(ctx context.Context, n int) error {
			<-store.run
			handled.Add(1)
			if n == links {
				return nil
			}
			return cap.Publish(ctx, nil, "link", n+1)
		}))
	publish(t, bus, "link", 1)
	captest.Drain(t, bus)
	if n := handled.Load(); n != links {
		t.Errorf("Drain returned after %d of %d links", n, links)
	}
}
