package subscribe_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// retryBroker is a broker that tries again by itself, with one queue.
type retryBroker struct {
	refuse error // of Fail and Park

	mu      sync.Mutex
	queue   []*queued
	changed chan struct{} // closed and replaced at each change
	cuts    chan struct{} // the same, at each cut
	parked  []*queued
	acked   []string // ids
	most    int      // unanswered at once
}

type queued struct {
	msg    *transport.Message
	failed int
	reason string
}

func newRetryBroker() *retryBroker {
	return &retryBroker{changed: make(chan struct{}), cuts: make(chan struct{})}
}

func (*retryBroker) Traits() transport.Traits {
	return transport.Traits{Name: "retryBroker", Wildcards: true, BrokerRetry: true, SingleActive: true, Ordered: true}
}

func (*retryBroker) Check(context.Context) error { return nil }

func (*retryBroker) Send(context.Context, []*transport.Message) []error { return nil }

func (b *retryBroker) put(qs ...*queued) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, qs...)
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *retryBroker) send(topic, id, body string) {
	b.put(&queued{msg: &transport.Message{ID: id, Topic: topic, Body: []byte(body), Headers: map[string]string{}}})
}

// cut loses every receiver.
func (b *retryBroker) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.cuts)
	b.cuts = make(chan struct{})
}

func (b *retryBroker) Receive(ctx context.Context, src transport.Source, deliver func(context.Context, []transport.Delivery)) error {
	r := &retryReceiver{b: b, src: src}
	defer r.leave()
	b.mu.Lock()
	cut := b.cuts
	b.mu.Unlock()
	for {
		batch, changed := r.take()
		if len(batch) > 0 {
			deliver(ctx, batch)
			continue
		}
		select {
		case <-changed:
		case <-cut:
			return transport.ErrUnavailable
		case <-ctx.Done():
			return nil
		}
	}
}

// retryReceiver is guarded by the broker's mutex.
type retryReceiver struct {
	b    *retryBroker
	src  transport.Source
	held []*queued
	left bool
}

func (r *retryReceiver) take() (batch []transport.Delivery, changed <-chan struct{}) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	for len(r.b.queue) > 0 && len(r.held) < r.src.Window {
		q := r.b.queue[0]
		r.b.queue = r.b.queue[1:]
		r.held = append(r.held, q)
		batch = append(batch, &retryDelivery{r: r, q: q, attempt: q.failed + 1})
	}
	r.b.most = max(r.b.most, len(r.held))
	return batch, r.b.changed
}

func (r *retryReceiver) leave() {
	r.b.mu.Lock()
	r.left = true
	r.b.mu.Unlock()
	r.b.put(r.held...)
}

type retryDelivery struct {
	r       *retryReceiver
	q       *queued
	attempt int
}

var errTooLate = errors.New("the receiver has left")

// answer takes the delivery out of the receiver's hands, once.
func (d *retryDelivery) answer(f func()) error {
	d.r.b.mu.Lock()
	defer d.r.b.mu.Unlock()
	if d.r.left {
		return errTooLate
	}
	i := slices.Index(d.r.held, d.q)
	if i < 0 {
		return nil
	}
	d.r.held = slices.Delete(d.r.held, i, i+1)
	close(d.r.b.changed) // there is room
	d.r.b.changed = make(chan struct{})
	f()
	return nil
}

func (d *retryDelivery) Message() *transport.Message { return d.q.msg }
func (d *retryDelivery) Attempt() int                { return d.attempt }

func (d *retryDelivery) Ack() error {
	return d.answer(func() { d.r.b.acked = append(d.r.b.acked, d.q.msg.ID) })
}

func (d *retryDelivery) Nack(after time.Duration) error {
	return d.answer(func() { time.AfterFunc(after, func() { d.r.b.put(d.q) }) })
}

func (d *retryDelivery) Fail(ctx context.Context, reason error) (bool, error) {
	if d.attempt >= d.r.src.Retry.Attempts {
		return true, d.Park(ctx, reason)
	}
	if d.r.b.refuse != nil {
		return false, errors.Join(d.r.b.refuse, d.Nack(time.Second))
	}
	return false, d.answer(func() {
		d.q.failed++
		time.AfterFunc(d.r.src.Retry.Wait, func() { d.r.b.put(d.q) })
	})
}

func (d *retryDelivery) Park(_ context.Context, reason error) error {
	if d.r.b.refuse != nil {
		return errors.Join(d.r.b.refuse, d.Nack(time.Second))
	}
	return d.answer(func() {
		d.q.reason = reason.Error()
		d.r.b.parked = append(d.r.b.parked, d.q)
	})
}

// ended returns what is acked and what is parked.
func (b *retryBroker) ended() (acked []string, parked []*queued) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.acked), slices.Clone(b.parked)
}

// waiting returns how many messages nobody has.
func (b *retryBroker) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// onBroker puts a consumer onto the broker.
func onBroker(b *retryBroker) func(*subscribe.ConsumerConfig) {
	return func(cfg *subscribe.ConsumerConfig) { cfg.Transport = b }
}

// refused returns why a consumer with these subscriptions is refused.
func refused(t *testing.T, tr transport.Transport, subs ...subscribe.Subscription) error {
	t.Helper()
	if tr == nil {
		tr = memqueue.New(memqueue.Config{})
	}
	_, err := subscribe.NewConsumer(subscribe.ConsumerConfig{
		Transport: tr, Codec: transport.JSON, Subscriptions: subs, Version: "v1", DefaultGroup: "test",
	})
	if err == nil {
		t.Fatal("not refused")
	}
	return err
}

// failures returns how many failed attempts are counted of what waits.
func (b *retryBroker) failures() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queue {
		n += q.failed
	}
	return n
}
