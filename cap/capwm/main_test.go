package capwm_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inbox keeps what handlers got.
type inbox struct {
	mu  sync.Mutex
	got []*cap.Message
}

func (i *inbox) handle(_ context.Context, m *cap.Message) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.got = append(i.got, m)
	return nil
}

// messages returns them when the bus has had its time.
func (i *inbox) messages() []*cap.Message {
	pass(5 * time.Second)
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.got
}

// pass lets fake time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// running is a bus on the memory adapters.
func running(t *testing.T, subs ...subscribe.Subscription) *cap.Bus {
	t.Helper()
	bus, err := cap.New(cap.Options{
		Storage: memstore.New(memstore.Config{}), Transport: memqueue.New(memqueue.Config{}),
		Registry: &subscribe.Registry{}, Subscriptions: subs, DefaultGroupName: "test",
		FailedRetryCount: 2, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bus.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return bus
}
