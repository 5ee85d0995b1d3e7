package sqlqueue

import (
	"slices"
	"sync"
	"time"

	"github.com/capbus/gocap/transport"
)

// hand is what a receiver has taken, by seq, and the answers that the database has
// not been told of.
type hand struct {
	tell chan struct{} // has a token when there are answers to write
	room chan struct{} // has a token when there may be more room than before

	mu     sync.Mutex
	open   map[int64]*delivery // without an answer
	acks   []int64
	nacks  []nack
	closed bool
}

type nack struct {
	seq   int64
	after time.Duration
}

func newHand() *hand {
	return &hand{tell: make(chan struct{}, 1), room: make(chan struct{}, 1), open: map[int64]*delivery{}}
}

// delivery is one message in the hands of a receiver.
type delivery struct {
	hand *hand
	seq  int64
	msg  *transport.Message

	answered bool // guarded by hand.mu
}

func (d *delivery) Message() *transport.Message { return d.msg }

// Ack may be called any number of times; the first answer counts. It returns
// before the database knows: an ack that cannot be written lets the message come
// again.
func (d *delivery) Ack() error {
	return d.hand.answer(d, func(h *hand) { h.acks = append(h.acks, d.seq) })
}

// Nack is as Ack. A wait of zero or less means at once.
func (d *delivery) Nack(after time.Duration) error {
	return d.hand.answer(d, func(h *hand) { h.nacks = append(h.nacks, nack{d.seq, max(after, 0)}) })
}

func (h *hand) answer(d *delivery, note func(*hand)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.answered {
		return nil
	}
	if h.closed {
		return errNotInHand
	}
	d.answered = true
	delete(h.open, d.seq)
	note(h)
	signal(h.tell)
	signal(h.room)
	return nil
}

// add takes deliveries into the hand.
func (h *hand) add(batch []*delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range batch {
		h.open[d.seq] = d
	}
}

// free is how many more a window takes. Nothing is taken while a whole window of
// answers waits to be written: who answers fast must not get ahead of the database.
func (h *hand) free(window int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.acks)+len(h.nacks) > window {
		return 0
	}
	return window - len(h.open)
}

// take returns up to n answers to write.
func (h *hand) take(n int) ([]int64, []nack) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a, b := min(n, len(h.acks)), min(n, len(h.nacks))
	acks, nacks := slices.Clone(h.acks[:a]), slices.Clone(h.nacks[:b])
	h.acks, h.nacks = slices.Delete(h.acks, 0, a), slices.Delete(h.nacks, 0, b)
	signal(h.room)
	if len(h.acks)+len(h.nacks) > 0 {
		signal(h.tell)
	}
	return acks, nacks
}

// close ends answering: what has no answer goes back.
func (h *hand) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}
