package memqueue

import (
	"time"

	"github.com/capbus/gocap/transport"
)

// item is the copy of a message in the queue of one group. Everything in it is
// guarded by the Queue's mutex. It is in one of four places: queued, waiting
// (for the time of a nack), in a receiver's hands, or gone.
type item struct {
	msg   *transport.Message // shared by the groups; never changed
	group *group
	seq   uint64 // its place in the order of sending
	sent  *sent  // the Send that waits for it; nil for an injected one
	// kept: it stays without a Send that waits for it (injected, or accepted
	// before a disconnection).
	kept bool

	place      place
	holder     *receiver // in hand
	tag        uint64    // number of the delivery that is valid
	timer      *time.Timer
	prev, next *item // queued
}

type place int

const (
	gone place = iota
	queued
	waiting
	inHand
)

// wanted reports whether the item is to be delivered again when it is given
// back. Once its Send has ended with an error it is not: the sender has it.
func (it *item) wanted() bool {
	return it.kept || it.sent != nil && !it.sent.answered
}

// detach takes the item out of the place where it is.
func (it *item) detach() {
	switch it.place {
	case queued:
		it.group.queue.remove(it)
	case waiting:
		it.timer.Stop()
		it.timer = nil
		delete(it.group.waiting, it)
	case inHand:
		delete(it.holder.inHand, it)
		it.holder.notify()
		it.holder = nil
	case gone:
	}
	it.place = gone
}

// requeue puts the item back where it stood in the order.
func (it *item) requeue() {
	it.detach()
	if !it.wanted() {
		return
	}
	it.place = queued
	it.group.queue.insert(it)
	it.group.notify()
}

// queue is a list of items in the order of their sending.
type queue struct {
	first, last *item
}

// push appends an item that is newer than all others.
func (l *queue) push(it *item) { l.insertBefore(nil, it) }

// insert puts an item in its place, which is nearly always close to the front.
func (l *queue) insert(it *item) {
	at := l.first
	for at != nil && at.seq < it.seq {
		at = at.next
	}
	l.insertBefore(at, it)
}

// insertBefore puts an item before another one, or last when that is nil.
func (l *queue) insertBefore(at, it *item) {
	it.next = at
	if at != nil {
		it.prev, at.prev = at.prev, it
	} else {
		it.prev, l.last = l.last, it
	}
	if it.prev != nil {
		it.prev.next = it
	} else {
		l.first = it
	}
}

func (l *queue) remove(it *item) {
	if it.prev != nil {
		it.prev.next = it.next
	} else {
		l.first = it.next
	}
	if it.next != nil {
		it.next.prev = it.prev
	} else {
		l.last = it.prev
	}
	it.prev, it.next = nil, nil
}
