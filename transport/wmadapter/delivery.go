package wmadapter

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/transport"
)

// item is one message of a subscription, from its arrival to its ack. Guarded by
// the receiver's mutex, but for what does not change.
type item struct {
	r     *receiver
	topic string
	wm    *message.Message

	acked bool
	lost  bool // the subscriber has taken it back: an ack counts for nothing
}

// gone is called when the message's context has ended, which says that the
// subscriber has dealt with the ack, or has taken the message back.
func (it *item) gone() {
	r := it.r
	r.mu.Lock()
	defer r.mu.Unlock()
	it.lost = !it.acked
	if it.acked {
		r.settle()
	}
}

// settle is called under the mutex, once for each ack that is dealt with.
func (r *receiver) settle() {
	if r.acking--; r.acking == 0 {
		signal(r.settled)
	}
}

// again queues a message that was given back.
func (it *item) again() {
	it.r.mu.Lock()
	defer it.r.mu.Unlock()
	if !it.r.closed {
		it.r.queued = append(it.r.queued, it)
		signal(it.r.arrived)
	}
}

// delivery is one item in the hands of a consumer. A nacked item comes in a new
// one.
type delivery struct {
	it  *item
	msg *transport.Message

	answered bool // guarded by the receiver's mutex
}

func (d *delivery) Message() *transport.Message { return d.msg }

// Ack may be called any number of times; the first answer counts.
func (d *delivery) Ack() error {
	return d.answer(func() {
		it := d.it
		if it.wm.Context().Done() != nil { // else nobody says that it is dealt with
			it.r.acking++
		}
		it.acked = true
		it.wm.Ack() // waits for nothing
		<-it.r.window
	})
}

// Nack may be called any number of times; the first answer counts. The message
// keeps its place in the window until its wait is over, so that a group which can
// take nothing gets nothing more.
func (d *delivery) Nack(after time.Duration) error {
	return d.answer(func() {
		if after <= 0 {
			d.it.r.queued = append(d.it.r.queued, d.it)
			signal(d.it.r.arrived)
			return
		}
		time.AfterFunc(after, d.it.again)
	})
}

// answer runs what the first answer means, under the mutex: an ack must not reach
// a subscriber that is being closed.
func (d *delivery) answer(do func()) error {
	r := d.it.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.answered {
		return nil
	}
	d.answered = true
	if d.it.lost {
		<-r.window
		return errNotInHand
	}
	if r.closed {
		return errNotInHand
	}
	do()
	return nil
}

// end takes no more answers, lets the subscriber deal with the last acks, and
// closes it: a subscriber that is closed right after an ack may forget that. What
// is not answered goes back to the broker thereby.
func (r *receiver) end(ctx context.Context, cancel context.CancelFunc) {
	defer cancel()
	ctx = context.WithoutCancel(ctx)
	close(r.ending)
	r.mu.Lock()
	r.closed = true
	acking := r.acking
	r.mu.Unlock()

	limit := time.NewTimer(r.t.cfg.CloseTimeout)
	defer limit.Stop()
	for acking > 0 {
		select {
		case <-r.settled:
			r.mu.Lock()
			acking = r.acking
			r.mu.Unlock()
		case <-limit.C:
			acking = 0
		}
	}
	// Close before the context ends: it lets some subscribers finish.
	_ = r.t.call(ctx, r.t.cfg.CloseTimeout, "close of a subscriber", func() error { return r.sub.Close() })
	cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.pumps.Wait()
	}()
	limit.Reset(r.t.cfg.CloseTimeout)
	select {
	case <-ended:
	case <-limit.C:
	}
	close(r.over)
	<-ended
}
