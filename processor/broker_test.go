package processor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// broker is a transport that does what a test says, and notes what it is asked.
type broker struct {
	// answer is the result of one message; nil: all are stored. It may wait.
	answer func(ctx context.Context, m *transport.Message) error
	// send, if set, replaces all of Send.
	send  func(ctx context.Context, msgs []*transport.Message) []error
	check func(ctx context.Context) error

	mu     sync.Mutex
	sent   []sent
	checks []time.Time
}

type sent struct {
	at    time.Time
	id    string
	topic string
}

func (b *broker) Send(ctx context.Context, msgs []*transport.Message) []error {
	b.mu.Lock()
	for _, m := range msgs {
		b.sent = append(b.sent, sent{time.Now(), m.ID, m.Topic})
	}
	send, answer := b.send, b.answer
	b.mu.Unlock()
	if send != nil {
		return send(ctx, msgs)
	}
	errs := make([]error, len(msgs))
	if answer == nil {
		return errs
	}
	for i, m := range msgs {
		errs[i] = answer(ctx, m)
	}
	return errs
}

func (b *broker) Check(ctx context.Context) error {
	b.mu.Lock()
	b.checks = append(b.checks, time.Now())
	check := b.check
	b.mu.Unlock()
	if check == nil {
		return nil
	}
	return check(ctx)
}

func (b *broker) Traits() transport.Traits { return transport.Traits{Name: "broker"} }

func (b *broker) Receive(context.Context, transport.Source, func(context.Context, []transport.Delivery)) error {
	return nil
}

// set changes what the broker does.
func (b *broker) set(f func(b *broker)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b)
}

// log returns what was sent so far.
func (b *broker) log() []sent {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]sent(nil), b.sent...)
}

func (b *broker) count(topic string) int {
	n := 0
	for _, s := range b.log() {
		if s.topic == topic {
			n++
		}
	}
	return n
}

// away makes the broker unreachable, or brings it back.
func (b *broker) away(is bool) {
	err := error(nil)
	if is {
		err = fmt.Errorf("%w: connection refused", transport.ErrUnavailable)
	}
	b.set(func(b *broker) {
		b.answer = func(context.Context, *transport.Message) error { return err }
		b.check = func(context.Context) error { return err }
	})
}

// sender is the engine of the outbox on a broker.
type sender struct {
	*tables

	b     *broker
	d     *processor.Dispatcher
	retry *processor.NeedRetry
	waker *processor.Waker

	endTake, endWork, endLast context.CancelFunc
	done                      chan struct{}

	mu     sync.Mutex
	failed []*storage.Record // callbacks
}

// newSender runs an engine until the test ends; adjust changes its
// configuration.
func newSender(t *testing.T, poll time.Duration, adjust func(*processor.DispatcherConfig)) *sender {
	t.Helper()
	s := &sender{tables: newTables(t), b: &broker{}, done: make(chan struct{})}
	cfg := processor.DispatcherConfig{
		Transport: s.b, Log: quietLog(s.log), KeepSent: time.Hour, SendWindow: 2000, BatchSize: 500, SendTimeout: time.Minute,
		Policy: rows.Policy{Count: 3, Interval: 10 * time.Second, KeepFailed: time.Hour, OweCallback: true},
		Callback: func(_ context.Context, rec *storage.Record, m *transport.Message) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if m.ID != rec.ID.String() || m.Topic != rec.Topic {
				t.Errorf("callback for %v with message %+v", rec.ID, m)
			}
			s.failed = append(s.failed, rec)
		},
	}
	if adjust != nil {
		adjust(&cfg)
	}
	s.d, s.retry = processor.NewDispatcher(cfg, s.keeper, poll)
	s.waker = processor.NewWaker(s.keeper, s.d, s.retry, quietLog(s.log))
	return s
}

func (s *sender) start() {
	var take, work, last context.Context
	base := context.WithoutCancel(s.t.Context())
	take, s.endTake = context.WithCancel(base)
	work, s.endWork = context.WithCancel(base)
	last, s.endLast = context.WithCancel(base)
	var loops sync.WaitGroup
	loops.Go(func() { s.d.Run(take, work, last) })
	loops.Go(func() { s.retry.Run(take) })
	loops.Go(func() { s.d.Order().Run(take) })
	loops.Go(func() { s.waker.Run(take) })
	go func() {
		defer close(s.done)
		loops.Wait()
	}()
	s.t.Cleanup(func() {
		s.endTake()
		s.endWork()
		s.endLast()
		<-s.done
	})
}

func (s *sender) callbacks() []*storage.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*storage.Record(nil), s.failed...)
}

// soon waits until ok, and fails the test if it takes longer than that.
func (s *sender) soon(within time.Duration, what string, ok func() bool) {
	s.t.Helper()
	end := time.Now().Add(within)
	for !ok() {
		if time.Now().After(end) {
			s.t.Fatalf("not within %s: %s", within, what)
		}
		<-time.After(time.Millisecond)
	}
}
