package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// meter notes what arrives, and what fails.
type meter struct {
	failures atomic.Int64 // of topic bad

	mu   sync.Mutex
	left int
	took []time.Duration
	done chan struct{}
}

func newMeter() *meter { return &meter{done: make(chan struct{})} }

var errOnPurpose = errors.New("on purpose")

// sided is where messages arrive: at the transport, or at handlers that share
// the workers of a group.
func (m *meter) sided(side string) (transport.Transport, []subscribe.Subscription, error) {
	switch side {
	case "send":
		return sink{m}, nil, nil
	case "handle":
		return memqueue.New(memqueue.Config{}), []subscribe.Subscription{
			subscribe.To("fresh", func(_ context.Context, at int64) error { m.fresh(at); return nil }, subscribe.Group("g")),
			subscribe.To("bad", func(context.Context, int64) error { return m.attempt() }, subscribe.Group("g")),
		}, nil
	}
	return nil, nil, fmt.Errorf("there is no side %q; give send or handle", side)
}

func (m *meter) attempt() error {
	m.failures.Add(1)
	return errOnPurpose
}

// fresh notes the arrival of a message that was published then.
func (m *meter) fresh(at int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took = append(m.took, time.Since(time.Unix(0, at)))
	if m.left--; m.left == 0 {
		close(m.done)
	}
}

func (m *meter) expect(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.took, m.done = n, nil, make(chan struct{})
}

func (m *meter) wait(ctx context.Context) ([]time.Duration, error) {
	select {
	case <-m.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(5 * time.Minute):
		return nil, errors.New("fresh messages did not arrive")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.took, nil
}

// fail publishes messages that fail, and waits until some have for the second
// time.
func (m *meter) fail(ctx context.Context, bus *cap.Bus, o options) error {
	was := m.failures.Load()
	if err := publish(ctx, bus, "bad", o.failing); err != nil {
		return err
	}
	return until(ctx, func() bool { return m.failures.Load() >= was+int64(o.failing)*21/20 })
}

func until(ctx context.Context, cond func() bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// sink is a transport that takes fresh messages.
type sink struct{ m *meter }

func (s sink) Send(_ context.Context, msgs []*transport.Message) []error {
	errs := make([]error, len(msgs))
	for i, msg := range msgs {
		if msg.Topic == "bad" {
			errs[i] = s.m.attempt()
			continue
		}
		at, err := strconv.ParseInt(string(msg.Body), 10, 64)
		if errs[i] = err; err == nil {
			s.m.fresh(at)
		}
	}
	return errs
}

func (sink) Receive(ctx context.Context, _ transport.Source, _ func(context.Context, []transport.Delivery)) error {
	<-ctx.Done()
	return nil
}

func (sink) Check(context.Context) error { return nil }

func (sink) Traits() transport.Traits { return transport.Traits{Name: "sink"} }
