// Package rows is what both engines do with rows of a table: be a living owner
// (Keeper), remember what is in hand (Hand), start rows and store their
// outcomes (Desk), and decide when a failed one is tried again (Policy).
//
// The rules are those of docs/architecture.md, "Ownership".
package rows

import (
	"sync"

	"github.com/capbus/gocap/storage"
)

// Hand remembers which rows this process works on, and which it has settled
// since the oldest look that is still open began: a look that read a row before
// it was settled must not start it again. The zero value is ready. Safe for
// concurrent use.
type Hand struct {
	mu    sync.Mutex
	held  map[storage.ID]bool      // true: a look has passed it meanwhile
	left  map[storage.ID]departure // how an id left the hand
	order []departure              // the same, oldest first
	looks map[*Look]struct{}
	clock uint64 // counts departures
}

type departure struct {
	id  storage.ID
	at  uint64 // by clock
	due bool   // the row will be due again
}

// Look is one reading of due rows, from before it is sent until its rows are
// taken.
type Look struct {
	hand   *Hand
	start  uint64
	missed bool
}

// Begin opens a look. It must be called before the rows are read, and End when
// they have been taken.
func (h *Hand) Begin() *Look {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &Look{hand: h, start: h.clock}
	if h.looks == nil {
		h.looks = map[*Look]struct{}{}
	}
	h.looks[l] = struct{}{}
	return l
}

// Take puts a row that the look has read into the hand. It reports false when
// the row is in hand already, or left it after the look had begun.
func (l *Look) Take(id storage.ID) bool {
	h := l.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, held := h.held[id]; held {
		h.held[id] = true
		return false
	}
	if d, ok := h.left[id]; ok && d.at > l.start {
		l.missed = l.missed || d.due
		return false
	}
	h.hold(id)
	return true
}

// Missed reports whether the look has passed a row that left the hand after it
// had begun and is due again: a scan behind the look may not find it.
func (l *Look) Missed() bool {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	return l.missed
}

// End closes the look.
func (l *Look) End() {
	h := l.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.looks, l)
	oldest := h.clock
	for other := range h.looks {
		oldest = min(oldest, other.start)
	}
	n := 0
	for ; n < len(h.order) && h.order[n].at <= oldest; n++ {
		if d := h.order[n]; h.left[d.id].at == d.at {
			delete(h.left, d.id)
		}
	}
	h.order = h.order[n:]
	if len(h.order) == 0 {
		h.order = nil // gives the array back
	}
}

// Hold puts ids of rows into the hand that are about to be inserted.
func (h *Hand) Hold(ids ...storage.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		h.hold(id)
	}
}

func (h *Hand) hold(id storage.ID) {
	if h.held == nil {
		h.held = map[storage.ID]bool{}
	}
	h.held[id] = false
}

// Leave takes ids out of the hand.
func (h *Hand) Leave(ids ...storage.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		h.leave(id, false)
	}
}

// LeaveDue takes a row out of the hand that will be due again. It reports
// whether a look has passed it meanwhile: a scan behind that look may not find
// it.
func (h *Hand) LeaveDue(id storage.ID) (passed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leave(id, true)
}

func (h *Hand) leave(id storage.ID, due bool) (passed bool) {
	passed, held := h.held[id]
	if !held {
		return false
	}
	delete(h.held, id)
	if len(h.looks) > 0 {
		if h.left == nil {
			h.left = map[storage.ID]departure{}
		}
		h.clock++
		d := departure{id: id, at: h.clock, due: due}
		h.left[id] = d
		h.order = append(h.order, d)
	}
	return passed
}

// Len returns how many rows are in hand.
func (h *Hand) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held)
}
