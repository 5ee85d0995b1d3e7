package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
)

// errCancelled: someone has deleted the queue, or its node has gone.
var errCancelled = errors.New("the broker has ended the consumer: its queue was deleted or cannot be reached")

// Declare makes the queue of a group and adds its bindings, and, for a Source
// with Retry, the queues beside it. An error that does not wrap
// transport.ErrUnavailable needs somebody to act: it names what is there with
// other settings.
func (t *Transport) Declare(ctx context.Context, src transport.Source) error {
	if err := t.checkSource(src); err != nil {
		return err
	}
	c, err := t.shared.consume.get(ctx)
	if err != nil {
		return err
	}
	return t.cfg.declareGroup(ctx, c, src)
}

// Receive declares the group and consumes with the window as prefetch. Acks are
// gathered, so an ack that returned nil may be lost with the connection: the
// message comes again. A nacked delivery stays in the window until its wait is
// over, so that a group which can take nothing gets nothing more.
func (t *Transport) Receive(ctx context.Context, src transport.Source, deliver func(context.Context, []transport.Delivery)) error {
	if err := t.checkSource(src); err != nil {
		return err
	}
	if src.Window < 1 {
		return fmt.Errorf("rabbitmq: group %q: window is %d, at least 1 is needed", src.Group, src.Window)
	}
	if q := t.cfg.AMQP.Consume.Qos.PrefetchCount; q > 1 {
		src.Window = min(src.Window, q)
	}
	src.Window = min(src.Window, math.MaxUint16) // the width of a prefetch
	err := t.receive(ctx, src, deliver)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (t *Transport) receive(ctx context.Context, src transport.Source, deliver func(context.Context, []transport.Delivery)) error {
	c, err := t.shared.consume.get(ctx)
	if err != nil {
		return err
	}
	if err := t.cfg.declareGroup(ctx, c, src); err != nil {
		return err
	}
	r := &receiver{
		t: t, conn: c, src: src, queue: t.cfg.queueName(src.Group), hand: newHand(),
		arrived: make(chan struct{}, 1), end: make(chan struct{}), cut: make(chan struct{}), gone: make(chan struct{}),
	}
	if err := r.consume(ctx); err != nil {
		return lasting(err)
	}
	rctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	r.run(rctx, lose, deliver)
	if err := context.Cause(rctx); err != nil {
		return unavailable(fmt.Errorf("group %q: %w", src.Group, err))
	}
	return unavailable(fmt.Errorf("group %q: %w", src.Group, errCancelled))
}

// run delivers until it is over, then has the last answers told and closes the
// channel, which gives back what has no answer; so also when deliver panics.
func (r *receiver) run(ctx context.Context, lose context.CancelCauseFunc, deliver func(context.Context, []transport.Delivery)) {
	var loops sync.WaitGroup
	loops.Go(func() { r.pump(lose) })
	loops.Go(r.tell)
	defer func() {
		r.hand.close()
		close(r.end)
		<-r.cut
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = r.conn.do(last, r.ch.Close, nil)
		close(r.gone)
		loops.Wait()
	}()
	r.loop(ctx, deliver)
}

func (t *Transport) checkSource(src transport.Source) error {
	if src.Group == "" || len(t.cfg.queueName(src.Group)) > transport.MaxTopicBytes {
		return fmt.Errorf("rabbitmq: group %q: the name of its queue must have 1 to %d bytes", src.Group, transport.MaxTopicBytes)
	}
	for _, p := range src.Topics {
		if err := transport.CheckPattern(p); err != nil {
			return fmt.Errorf("rabbitmq: group %q: %w", src.Group, err)
		}
	}
	if err := t.shared.own(t.cfg.queueName(src.Group), src.Group); err != nil {
		return err
	}
	if err := checkRetry(t.cfg.queueName(src.Group), src.Retry); err != nil {
		return fmt.Errorf("rabbitmq: group %q: %w", src.Group, err)
	}
	return nil
}

// receiver is one call of Receive, on a channel of its own.
type receiver struct {
	t      *Transport
	conn   *conn
	ch     *amqp091.Channel
	src    transport.Source
	queue  string
	in     <-chan amqp091.Delivery
	closes chan *amqp091.Error
	hand   *hand

	arrived chan struct{} // has a token when there is something in queued
	end     chan struct{} // closed when no answer comes any more
	cut     chan struct{} // closed when all answers are told
	gone    chan struct{} // closed when the channel is, or does not answer

	mu     sync.Mutex
	queued []amqp091.Delivery
	over   bool
}

func (r *receiver) consume(ctx context.Context) error {
	return r.conn.do(ctx, func() (err error) {
		if r.ch, err = r.conn.Channel(); err != nil {
			return err
		}
		r.closes = r.ch.NotifyClose(make(chan *amqp091.Error, 1))
		if err = r.ch.Qos(r.src.Window, 0, false); err != nil {
			return err
		}
		o := r.t.cfg.AMQP.Consume
		r.in, err = r.ch.Consume(r.queue, o.Consumer, false, o.Exclusive, false, false, o.Arguments)
		if err != nil {
			_ = r.ch.Close()
			return fmt.Errorf("consume from queue %q: %w", r.queue, err)
		}
		return nil
	}, func() {
		if r.ch != nil {
			_ = r.ch.Close() // what it consumes goes back
		}
	})
}

// pump takes deliveries off the channel while others are being stored, so that
// the next batch is all that came meanwhile: at most a window, which is what the
// broker leaves unanswered. It ends with the consumer: when the channel is lost,
// what was delivered belongs to others again, so deliver is to stop. When the
// queue is gone, what has come is nowhere else, so it is still delivered.
func (r *receiver) pump(lose context.CancelCauseFunc) {
	for r.more() {
	}
	if r.ch.IsClosed() {
		var err error = amqp091.ErrClosed
		if cause := <-r.closes; cause != nil {
			err = cause
		}
		lose(err)
	}
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.signal()
}

// more queues the next delivery, or reports that there will be none.
func (r *receiver) more() bool {
	select {
	case d, ok := <-r.in:
		if !ok {
			return false
		}
		r.mu.Lock()
		r.queued = append(r.queued, d)
		r.mu.Unlock()
		r.signal()
		return true
	case <-r.gone:
		return false
	}
}

func (r *receiver) signal() {
	select {
	case r.arrived <- struct{}{}:
	default:
	}
}

// loop delivers until ctx ends or nothing more comes, and declares the group again now and then: who
// deletes an exchange takes its bindings along.
func (r *receiver) loop(ctx context.Context, deliver func(context.Context, []transport.Delivery)) {
	again := time.NewTicker(r.t.cfg.RefreshInterval)
	defer again.Stop()
	for ctx.Err() == nil {
		select {
		case <-r.arrived:
			batch, over := r.batch()
			if len(batch) > 0 {
				deliver(ctx, batch)
			}
			if over {
				return
			}
		case <-again.C:
			if err := r.t.cfg.declareGroup(ctx, r.conn, r.src); err != nil && ctx.Err() == nil {
				r.t.cfg.Logger.WarnContext(ctx, "queue not declared again", "group", r.src.Group, "err", err)
			}
		case <-ctx.Done():
		}
	}
}

// batch makes deliveries of what is queued; over: nothing more will come.
func (r *receiver) batch() (batch []transport.Delivery, over bool) {
	r.mu.Lock()
	raws, over := r.queued, r.over
	r.queued = nil
	r.mu.Unlock()
	batch = make([]transport.Delivery, len(raws))
	for i, raw := range raws {
		r.hand.add()
		batch[i] = r.delivery(raw)
	}
	return batch, over
}

// tell writes answers to the broker; what comes while it writes goes together.
func (r *receiver) tell() {
	defer close(r.cut)
	for {
		select {
		case <-r.hand.wake:
			r.flush()
		case <-r.end:
			r.flush()
			return
		}
	}
}

// flush ignores errors: the channel is lost then, and pump says so.
func (r *receiver) flush() {
	for _, a := range r.hand.take() {
		switch a.kind {
		case acked:
			_ = r.ch.Ack(a.tag, a.multiple)
		default:
			_ = r.ch.Nack(a.tag, false, a.kind == nacked)
		}
	}
}

// delivery is one message in the hands of a receiver.
type delivery struct {
	hand *hand
	tag  uint64
	msg  *transport.Message
}

func (r *receiver) delivery(raw amqp091.Delivery) transport.Delivery {
	d := &delivery{hand: r.hand, tag: raw.DeliveryTag, msg: r.t.cfg.incoming(r.queue, raw)}
	if r.src.Retry == nil {
		return d
	}
	return &retried{
		delivery: d, t: r.t, retry: retryDefaults(*r.src.Retry), raw: raw, queue: r.queue,
		attempt: failures(raw.Headers, r.queue) + 1,
	}
}

func (d *delivery) Message() *transport.Message { return d.msg }

func (d *delivery) Ack() error { return d.answer(acked, 0) }

func (d *delivery) Nack(after time.Duration) error { return d.answer(nacked, after) }

func (d *delivery) answer(kind answerKind, after time.Duration) error {
	return d.hand.answer(d.tag, kind, after)
}
