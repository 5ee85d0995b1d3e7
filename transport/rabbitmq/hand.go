package rabbitmq

import (
	"sync"
	"time"
)

// answerKind is what becomes of a delivery.
type answerKind uint8

const (
	unanswered answerKind = iota
	waiting               // nacked, and not yet due to go back; or being parked
	acked
	nacked   // back to the queue
	rejected // to the retry queue
	told     // the broker knows
)

// hand is what a receiver has from the broker, by delivery tag, and the answers
// that the broker has not been told of.
type hand struct {
	wake chan struct{} // has a token when there are answers to tell

	mu     sync.Mutex
	base   uint64 // tag of the first of kinds; what is below has been told
	kinds  []answerKind
	timers map[uint64]*time.Timer
	closed bool
}

func newHand() *hand {
	return &hand{wake: make(chan struct{}, 1), base: 1, timers: map[uint64]*time.Timer{}}
}

// add is called for each delivery, in the order of tags.
func (h *hand) add() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kinds = append(h.kinds, unanswered)
}

// answer keeps the first answer. It reports errNotInHand when the receiver has
// ended.
func (h *hand) answer(tag uint64, kind answerKind, after time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answeredLocked(tag) {
		return nil
	}
	return h.setLocked(tag, kind, after)
}

// reserve takes the place of the first answer, which resolve gives. It reports
// whether nobody has answered.
func (h *hand) reserve(tag uint64) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answeredLocked(tag) {
		return false, nil
	}
	if h.closed {
		return false, errNotInHand
	}
	h.kinds[tag-h.base] = waiting
	return true, nil
}

func (h *hand) resolve(tag uint64, kind answerKind, after time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.setLocked(tag, kind, after)
}

func (h *hand) setLocked(tag uint64, kind answerKind, after time.Duration) error {
	if h.closed {
		return errNotInHand
	}
	if kind == nacked && after > 0 {
		h.kinds[tag-h.base] = waiting
		h.timers[tag] = time.AfterFunc(after, func() { h.due(tag) })
		return nil
	}
	h.kinds[tag-h.base] = kind
	h.signal()
	return nil
}

func (h *hand) due(tag uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || tag < h.base || h.kinds[tag-h.base] != waiting {
		return
	}
	delete(h.timers, tag)
	h.kinds[tag-h.base] = nacked
	h.signal()
}

func (h *hand) answeredLocked(tag uint64) bool {
	return tag < h.base || h.kinds[tag-h.base] != unanswered
}

func (h *hand) signal() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// telling is one frame to the broker.
type telling struct {
	tag      uint64
	kind     answerKind
	multiple bool
}

// take returns what to tell the broker: one ack for all deliveries from the
// first on without a gap, and one answer for each of the others.
func (h *hand) take() []telling {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []telling
	last := -1 // the last ack of those without a gap
	n := 0
	for ; n < len(h.kinds) && h.kinds[n] >= acked; n++ {
		if h.kinds[n] == acked {
			last = n
		}
	}
	for i, k := range h.kinds {
		switch {
		case k == nacked || k == rejected || k == acked && i > last:
			out = append(out, telling{tag: h.base + uint64(i), kind: k})
			h.kinds[i] = told
		case k == acked:
			h.kinds[i] = told
		}
	}
	if last >= 0 { // after the nacks below it, which it would ack too
		out = append(out, telling{tag: h.base + uint64(last), kind: acked, multiple: true})
	}
	h.base += uint64(n)
	h.kinds = append(h.kinds[:0], h.kinds[n:]...)
	return out
}

// close gives back what has no answer; the broker learns it from the closing of
// the channel.
func (h *hand) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, t := range h.timers {
		t.Stop()
	}
}
