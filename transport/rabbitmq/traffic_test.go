package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/transport"
)

// traffic is messages on their way: senders send each until it is stored, and a
// receiver takes them, both as the engine does.
type traffic struct {
	t     *testing.T
	tr    transport.Transport
	topic string
	group string
	end   context.CancelFunc
	loops sync.WaitGroup

	mu       sync.Mutex
	stored   map[string]bool
	got      map[string]int
	errs     map[string]int
	lastSend time.Time
	lastGot  time.Time
	moved    chan struct{} // replaced at each change
}

// newTraffic starts a receiver of a new group and returns when it gets messages.
func newTraffic(t *testing.T, tr transport.Transport) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &traffic{
		t: t, tr: tr, topic: "traffic." + newID(), group: "gocap-test-" + newID(), end: cancel,
		stored: map[string]bool{}, got: map[string]int{}, errs: map[string]int{}, moved: make(chan struct{}),
	}
	f.loops.Go(func() { f.receive(ctx) })
	t.Cleanup(f.stop)
	return f
}

func (f *traffic) stop() {
	f.end()
	f.loops.Wait()
}

func (f *traffic) source() transport.Source {
	return transport.Source{Group: f.group, Topics: []string{f.topic}, Window: 200}
}

func (f *traffic) receive(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.tr.Receive(ctx, f.source(), func(_ context.Context, batch []transport.Delivery) {
			f.change(func() {
				for _, d := range batch {
					f.got[d.Message().ID]++
				}
				f.lastGot = time.Now()
			})
			for _, d := range batch {
				_ = d.Ack() // one that is lost comes again
			}
		})
		if ctx.Err() == nil {
			f.note(err)
			pause()
		}
	}
}

// send starts a sender of n messages in batches.
func (f *traffic) send(n, batch int) {
	f.loops.Go(func() {
		for ; n > 0; n -= batch {
			var msgs []*transport.Message
			for range min(n, batch) {
				id := newID()
				msgs = append(msgs, &transport.Message{
					ID: id, Topic: f.topic, Body: []byte(id),
					Headers: map[string]string{transport.HeaderID: id, transport.HeaderTopic: f.topic},
				})
			}
			f.sendUntilStored(msgs)
		}
	})
}

func (f *traffic) sendUntilStored(msgs []*transport.Message) {
	for len(msgs) > 0 && f.t.Context().Err() == nil {
		var left []*transport.Message
		errs := f.tr.Send(f.t.Context(), msgs)
		f.change(func() {
			for i, err := range errs {
				if err == nil {
					f.stored[msgs[i].ID] = true
					f.lastSend = time.Now()
				}
			}
		})
		for i, err := range errs {
			if err != nil {
				f.note(err)
				left = append(left, msgs[i])
			}
		}
		if msgs = left; len(left) > 0 {
			pause()
		}
	}
}

func (f *traffic) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.moved)
	f.moved = make(chan struct{})
}

// note counts what went wrong, by kind.
func (f *traffic) note(err error) {
	kind := "other: " + fmt.Sprint(err)
	for _, is := range []error{transport.ErrUnavailable, transport.ErrUnroutable, transport.ErrRejected, transport.ErrBusy} {
		if errors.Is(err, is) {
			kind = is.Error()
		}
	}
	f.change(func() { f.errs[kind]++ })
}

// until waits for a condition, which is looked at when anything moves.
func (f *traffic) until(what string, is func() bool) {
	f.t.Helper()
	overdue := time.NewTimer(2*wait + time.Duration(load(f.t, 0))*time.Millisecond*5)
	defer overdue.Stop()
	for {
		f.mu.Lock()
		ok, moved := is(), f.moved
		f.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-moved:
		case <-overdue.C:
			f.mu.Lock()
			defer f.mu.Unlock()
			f.t.Fatalf("waited in vain until %s; stored %d, got %d, errors %v", what, len(f.stored), len(f.got), f.errs)
		}
	}
}

func (f *traffic) untilGot(n int) {
	f.t.Helper()
	f.until(fmt.Sprintf("%d messages are received", n), func() bool { return len(f.got) >= n })
}

// complete waits until n messages are stored, and checks that each has come, and
// that nothing was counted as an attempt.
func (f *traffic) complete(n int) {
	f.t.Helper()
	f.until(fmt.Sprintf("%d messages are stored and received", n), func() bool {
		if len(f.stored) < n {
			return false
		}
		for id := range f.stored {
			if f.got[id] == 0 {
				return false
			}
		}
		return true
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	more := 0
	for _, times := range f.got {
		more += times - 1
	}
	f.t.Logf("%d messages, %d came again, errors on the way: %v", n, more, f.errs)
	for kind, n := range f.errs {
		if kind != transport.ErrUnavailable.Error() && kind != transport.ErrUnroutable.Error() {
			f.t.Errorf("%d times an outcome that counts as an attempt: %s", n, kind)
		}
	}
}

// resumed checks that messages are sent and received within 2 s of a moment.
func (f *traffic) resumed(since time.Time) {
	f.t.Helper()
	f.until("messages move again", func() bool { return f.lastSend.After(since) && f.lastGot.After(since) })
	took := time.Since(since)
	f.t.Logf("resumed %v after an independent client", took.Round(time.Millisecond))
	if took > 2*time.Second {
		f.t.Errorf("resumed %v after an independent client, want 2s at most", took)
	}
}
