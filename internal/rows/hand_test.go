package rows_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

func TestWhatIsInHandIsNotTakenAgain(t *testing.T) {
	t.Parallel()
	var h rows.Hand
	inserted, read := storage.ID(ids.New()), storage.ID(ids.New())
	h.Hold(inserted)
	look := h.Begin()
	if look.Take(inserted) {
		t.Error("a row was taken that was in hand before its insert")
	}
	if !look.Take(read) || look.Take(read) {
		t.Error("a row was not taken once")
	}
	look.End()
	later := h.Begin()
	defer later.End()
	if later.Take(read) {
		t.Error("a later look took a row that is in hand")
	}
	if n := h.Len(); n != 2 {
		t.Errorf("%d rows in hand, want 2", n)
	}
}

// TestALookOlderThanASettleDoesNotTake: it may have read the row as it was
// before, and would start it again.
func TestALookOlderThanASettleDoesNotTake(t *testing.T) {
	t.Parallel()
	var h rows.Hand
	id := storage.ID(ids.New())
	h.Hold(id)
	before, other := h.Begin(), h.Begin()
	h.Leave(id)
	after := h.Begin()
	other.End() // the knowledge must not go with another look
	if before.Take(id) {
		t.Error("a look that began before the settle took the row")
	}
	if !after.Take(id) {
		t.Error("a look that began after the settle did not take the row")
	}
	h.Leave(id)
	if before.Take(id) || after.Take(id) {
		t.Error("a look took the row again after its second run")
	}
	before.End()
	after.End()
	fresh := h.Begin()
	defer fresh.End()
	if !fresh.Take(id) {
		t.Error("a row that left the hand is never taken again")
	}
}

func TestLeavingWithoutHavingBeenInHandChangesNothing(t *testing.T) {
	t.Parallel()
	var h rows.Hand
	look := h.Begin()
	defer look.End()
	id := storage.ID(ids.New())
	h.Leave(id)
	if !look.Take(id) {
		t.Error("a row that was never in hand counts as settled")
	}
}

// model is the hand with an endless memory.
type model struct {
	now  int
	held map[storage.ID]bool
	left map[storage.ID]int
}

// TestHandModel compares random histories with a model that forgets nothing.
func TestHandModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // repeatable on purpose
		m := model{held: map[storage.ID]bool{}, left: map[storage.ID]int{}}
		var h rows.Hand
		looks, began := []*rows.Look{}, []int{}
		for step := range 400 {
			m.now++
			id := idOf(rng.IntN(6))
			switch op := rng.IntN(10); {
			case op < 2 && len(looks) < 5:
				looks, began = append(looks, h.Begin()), append(began, m.now)
			case op < 3 && len(looks) > 0:
				i := rng.IntN(len(looks))
				looks[i].End()
				looks, began = append(looks[:i], looks[i+1:]...), append(began[:i], began[i+1:]...)
			case op < 7 && len(looks) > 0:
				i := rng.IntN(len(looks))
				want := !m.held[id] && m.left[id] <= began[i]
				if got := looks[i].Take(id); got != want {
					t.Fatalf("seed %d, step %d: taken %v, want %v", seed, step, got, want)
				}
				if want {
					m.held[id] = true
				}
			case op < 8:
				h.Hold(id)
				m.held[id] = true
			default:
				h.Leave(id)
				if m.held[id] {
					delete(m.held, id)
					m.left[id] = m.now
				}
			}
			if h.Len() != len(m.held) {
				t.Fatalf("seed %d, step %d: %d in hand, want %d", seed, step, h.Len(), len(m.held))
			}
		}
	}
}

// TestARowIsInOneHandAtATime lets looks compete for rows.
func TestARowIsInOneHandAtATime(t *testing.T) {
	t.Parallel()
	var h rows.Hand
	var mu sync.Mutex
	running := map[storage.ID]bool{}
	var wg sync.WaitGroup
	for worker := range uint64(8) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(worker, 2)) //nolint:gosec // repeatable on purpose
			for range 2000 {
				look := h.Begin()
				id := idOf(rng.IntN(10))
				if look.Take(id) {
					mu.Lock()
					if running[id] {
						t.Errorf("%v is run twice at once", id)
					}
					running[id] = true
					mu.Unlock()
					mu.Lock()
					running[id] = false
					mu.Unlock()
					h.Leave(id)
				}
				look.End()
			}
		})
	}
	wg.Wait()
	if h.Len() != 0 {
		t.Errorf("%d rows left in hand", h.Len())
	}
}
