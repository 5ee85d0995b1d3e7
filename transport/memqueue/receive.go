package memqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capbus/gocap/transport"
)

// receiver is one call of Receive.
type receiver struct {
	window int
	wake   chan struct{}           // has a token when there may be something to take
	lose   context.CancelCauseFunc // ends the receiver from outside

	// guarded by the Queue's mutex
	group  *group // nil: disconnected
	joined uint64 // its place among the receivers of the group
	inHand map[*item]struct{}
}

// Declare makes a group and its patterns known ahead of its receivers: Sends
// wait for them, as for receivers that have just left. Without it a message
// that is sent while a bus starts could reach one of its groups and miss
// another. It fails with ErrUnavailable while disconnected.
func (q *Queue) Declare(_ context.Context, src transport.Source) error {
	if err := checkSource(src); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.down {
		return errDisconnected
	}
	q.startLinger(q.declare(src))
	return nil
}

// Receive delivers what the group gets; receivers of one group compete. It
// returns an error that wraps ErrUnavailable when disconnected.
func (q *Queue) Receive(ctx context.Context, src transport.Source, deliver func(context.Context, []transport.Delivery)) error {
	if err := checkSource(src); err != nil {
		return err
	}
	if src.Window < 1 {
		return fmt.Errorf("memqueue: group %q: window is %d, at least 1 is needed", src.Group, src.Window)
	}
	rctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	r := &receiver{
		window: src.Window,
		wake:   make(chan struct{}, 1),
		lose:   lose,
		inHand: make(map[*item]struct{}),
	}
	if err := q.join(r, src); err != nil {
		return err
	}
	defer q.leave(r)

	for rctx.Err() == nil {
		if batch := q.take(r); len(batch) > 0 {
			deliver(rctx, batch)
			continue
		}
		select {
		case <-r.wake:
		case <-rctx.Done():
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(rctx)
}

func checkSource(src transport.Source) error {
	if src.Group == "" {
		return errors.New("memqueue: source without a group")
	}
	for _, p := range src.Topics {
		if err := transport.CheckPattern(p); err != nil {
			return fmt.Errorf("memqueue: group %q: %w", src.Group, err)
		}
	}
	return nil
}

func (q *Queue) join(r *receiver, src transport.Source) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.down {
		return errDisconnected
	}
	g := q.declare(src)
	g.stopLinger()
	g.receivers[r] = struct{}{}
	g.joins++
	r.group, r.joined = g, g.joins
	return nil
}

// leave gives back what the receiver has not answered.
func (q *Queue) leave(r *receiver) {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := r.group
	if g == nil {
		return
	}
	delete(g.receivers, r)
	r.group = nil
	r.giveBack()
	if len(g.receivers) == 0 {
		q.abandon(g)
	}
	g.notify() // it may be another's turn
}

// take puts what is queued into the receiver's hands, as far as its window goes.
func (q *Queue) take(r *receiver) []transport.Delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.group == nil || !r.group.active(r) {
		return nil
	}
	var batch []transport.Delivery
	for len(r.inHand) < r.window {
		it := r.group.queue.first
		if it == nil {
			break
		}
		it.detach()
		it.place, it.holder = inHand, r
		it.tag++
		r.inHand[it] = struct{}{}
		batch = append(batch, &delivery{q: q, it: it, tag: it.tag, msg: it.msg.Clone()})
	}
	return batch
}

func (r *receiver) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// delivery is one item in the hands of a receiver.
type delivery struct {
	q   *Queue
	it  *item
	tag uint64
	msg *transport.Message

	answered bool // guarded by the Queue's mutex
}

func (d *delivery) Message() *transport.Message { return d.msg }

// Ack may be called any number of times; the first answer counts.
func (d *delivery) Ack() error {
	return d.answer(func() {
		d.it.detach()
		if d.it.sent != nil {
			d.q.acked(d.it.sent)
		}
	})
}

// Nack may be called any number of times; the first answer counts. A wait of
// zero or less means at once.
func (d *delivery) Nack(after time.Duration) error {
	return d.answer(func() {
		if after <= 0 || !d.it.wanted() {
			d.it.requeue()
			return
		}
		d.q.requeueLater(d.it, after)
	})
}

func (d *delivery) answer(do func()) error {
	d.q.mu.Lock()
	defer d.q.mu.Unlock()
	if d.answered {
		return nil
	}
	if d.it.place != inHand || d.it.tag != d.tag {
		return errNotInHand
	}
	d.answered = true
	do()
	return nil
}

func (q *Queue) requeueLater(it *item, after time.Duration) {
	it.detach()
	it.place = waiting
	it.group.waiting[it] = struct{}{}
	var t *time.Timer
	t = time.AfterFunc(after, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if it.place == waiting && it.timer == t {
			it.requeue()
		}
	})
	it.timer = t
}
