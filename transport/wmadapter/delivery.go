package wmadapter

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/transport"
)

// maxOwed is the most acks of a receiver that wait for their messages to come again:
// another instance may have got them.
const maxOwed = 1000

// minAcking is the most acks that are not dealt with and are remembered, unless the
// window is larger: some subscribers never end the context of a message.
const minAcking = 100

// item is one message of a subscription, from its arrival to its ack. Guarded by
// the receiver's mutex, but for what does not change.
type item struct {
	r     *receiver
	topic string

	wm     *message.Message // the last that came of it
	ignore func() bool      // that its context ends; false: it has
	acked  bool
}

// came is called under the mutex.
func (it *item) came(wm *message.Message) {
	it.wm = wm
	it.ignore = context.AfterFunc(wm.Context(), func() { it.gone(wm) })
}

func (it *item) key() string { return it.topic + "\x00" + idOf(it.wm) }

// lost reports whether the subscriber has taken the message back: an ack counts for
// nothing.
func (it *item) lost() bool { return it.wm.Context().Err() != nil }

// returned deals with a message that the subscriber had taken back, because its
// time for acks was over, and now gives again: what is still in hand here is not
// delivered once more, and what has been acked meanwhile is acked now.
func (r *receiver) returned(topic string, wm *message.Message) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := (&item{topic: topic, wm: wm}).key()
	it := r.held[key]
	_, owed := r.owed[key]
	switch {
	case r.closed || idOf(wm) == "":
		return false
	case owed:
		delete(r.owed, key)
		it = &item{r: r, topic: topic}
		it.came(wm)
		it.ack()
	case it != nil && it.lost():
		it.came(wm)
	default:
		return false
	}
	return true
}

// gone is called when a message's context has ended, which says that the
// subscriber has dealt with the ack, or has taken the message back.
func (it *item) gone(wm *message.Message) {
	it.r.mu.Lock()
	defer it.r.mu.Unlock()
	if it.acked && it.wm == wm {
		it.r.settle()
	}
}

// ack is called under the mutex.
func (it *item) ack() {
	switch {
	case it.wm.Context().Done() == nil: // nobody says that it is dealt with
	case it.r.acking < max(cap(it.r.window), minAcking) || !it.ignore():
		it.r.acking++
	}
	it.acked = true
	it.wm.Ack() // waits for nothing
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

// Ack may be called any number of times; the first answer counts. When the
// subscriber has taken the message back, the ack is kept for when it comes again.
func (d *delivery) Ack() error {
	return d.answer(func() error {
		it := d.it
		key := it.key()
		if it.r.held[key] == it {
			delete(it.r.held, key)
		}
		<-it.r.window
		if !it.lost() {
			it.ack()
			return nil
		}
		if idOf(it.wm) == "" || len(it.r.owed) >= maxOwed {
			return errNotInHand
		}
		it.r.owed[key] = struct{}{}
		return nil
	})
}

// Nack may be called any number of times; the first answer counts. The message
// keeps its place in the window until its wait is over, so that a group which can
// take nothing gets nothing more.
func (d *delivery) Nack(after time.Duration) error {
	return d.answer(func() error {
		if after <= 0 {
			d.it.r.queued = append(d.it.r.queued, d.it)
			signal(d.it.r.arrived)
			return nil
		}
		time.AfterFunc(after, d.it.again)
		return nil
	})
}

// answer runs what the first answer means, under the mutex: an ack must not reach
// a subscriber that is being closed.
func (d *delivery) answer(do func() error) error {
	r := d.it.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.answered {
		return nil
	}
	if r.closed {
		return errNotInHand
	}
	d.answered = true
	return do()
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
