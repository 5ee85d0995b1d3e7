package rabbitmq

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// TestHandTellsEachAnswerOnce plays a broker: whatever the order of answers, each
// delivery is settled once and as it was answered, and acks without a gap go
// together.
func TestHandTellsEachAnswerOnce(t *testing.T) {
	t.Parallel()
	for range 300 {
		h := newHand()
		want := map[uint64]answerKind{}
		open := map[uint64]bool{} // what the broker waits for
		tell := func() {
			for _, a := range h.take() {
				settle(t, open, want, a)
			}
		}
		for tag := uint64(1); tag <= 60; tag++ {
			h.add()
			open[tag] = true
			for range rand.IntN(3) { //nolint:gosec // a test
				n := 1 + rand.Uint64N(tag) //nolint:gosec // a test
				kind := acked
				if rand.IntN(4) == 0 { //nolint:gosec // a test
					kind = []answerKind{nacked, rejected}[rand.IntN(2)] //nolint:gosec // a test
				}
				if want[n] == unanswered {
					want[n] = kind
				}
				if err := h.answer(n, kind, 0); err != nil {
					t.Fatal(err)
				}
			}
			if rand.IntN(5) == 0 { //nolint:gosec // a test
				tell()
			}
		}
		tell()
		for tag := uint64(1); tag <= 60; tag++ {
			if open[tag] != (want[tag] == unanswered) {
				t.Fatalf("delivery %d: answered %v, told: %t", tag, want[tag], !open[tag])
			}
		}
	}
}

func settle(t *testing.T, open map[uint64]bool, want map[uint64]answerKind, a telling) {
	t.Helper()
	if !open[a.tag] || want[a.tag] != a.kind {
		t.Fatalf("delivery %d: told %v, answered %v, the broker waits for it: %t", a.tag, a.kind, want[a.tag], open[a.tag])
	}
	for tag := range open {
		if tag == a.tag || a.multiple && tag < a.tag {
			if want[tag] != a.kind {
				t.Fatalf("delivery %d: told %v along with %d, answered %v", tag, a.kind, a.tag, want[tag])
			}
			delete(open, tag)
		}
	}
}

func TestHandGathersAcks(t *testing.T) {
	t.Parallel()
	h := newHand()
	for tag := uint64(1); tag <= 500; tag++ {
		h.add()
		if err := h.answer(tag, acked, 0); err != nil {
			t.Fatal(err)
		}
	}
	if told := h.take(); len(told) != 1 || told[0] != (telling{tag: 500, kind: acked, multiple: true}) {
		t.Errorf("500 acks are told as %v, want one frame", told)
	}
}

func TestHandIsEmptyAfterTheEnd(t *testing.T) {
	t.Parallel()
	h := newHand()
	for range 3 {
		h.add()
	}
	if err := h.answer(1, acked, 0); err != nil {
		t.Fatal(err)
	}
	if err := h.answer(2, nacked, 1<<40); err != nil { // waits, and goes back with the channel
		t.Fatal(err)
	}
	if first, err := h.reserve(1); first || err != nil {
		t.Errorf("reserved after an ack: %t, %v", first, err)
	}
	h.close()
	if err := h.answer(3, acked, 0); !errors.Is(err, errNotInHand) {
		t.Errorf("an ack after the end: %v", err)
	}
	if first, err := h.reserve(3); first || !errors.Is(err, errNotInHand) {
		t.Errorf("reserved after the end: %t, %v", first, err)
	}
	if told := h.take(); len(told) != 1 || told[0].tag != 1 {
		t.Errorf("told %v, want the ack alone", told)
	}
}
