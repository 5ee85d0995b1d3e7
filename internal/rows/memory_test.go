package rows

import (
	"encoding/binary"
	"testing"

	"github.com/capbus/gocap/storage"
)

// TestHandForgets: what it remembers of settled rows is bounded by what was
// settled while the oldest look was open.
func TestHandForgets(t *testing.T) {
	t.Parallel()
	var h Hand
	n := uint64(0)
	next := func() (id storage.ID) {
		n++
		binary.BigEndian.PutUint64(id[:], n)
		return id
	}
	for range 1000 { // without a look nothing is remembered
		id := next()
		h.Hold(id)
		h.Leave(id)
	}
	if len(h.left)+len(h.order)+len(h.held) != 0 {
		t.Fatalf("%d ids are remembered though no look is open", len(h.left)+len(h.order))
	}
	look := h.Begin()
	for range 1000 { // there is always a look open, but none for long
		for range 100 {
			id := next()
			h.Hold(id)
			h.Leave(id)
		}
		following := h.Begin()
		look.End()
		look = following
		if len(h.left) > 100 || len(h.order) > 100 {
			t.Fatalf("%d ids are remembered for a look during which at most 100 were settled", len(h.left))
		}
	}
	look.End()
	if len(h.left)+len(h.order)+len(h.looks)+len(h.held) != 0 {
		t.Errorf("after the last look %d ids are remembered", len(h.left)+len(h.order))
	}
}
