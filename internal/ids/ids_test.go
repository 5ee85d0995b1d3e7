package ids_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/ids"
)

// TestLayoutOfUUIDv7 as in RFC 9562: 48 bits of milliseconds, version, variant.
func TestLayoutOfUUIDv7(t *testing.T) {
	t.Parallel()
	before := time.Now().UnixMilli()
	id := ids.New()
	after := time.Now().UnixMilli()
	var ms [8]byte
	copy(ms[2:], id[:6])
	if at := int64(binary.BigEndian.Uint64(ms[:])); at < before || at > after { //nolint:gosec // 48 bits fit
		t.Errorf("time %d, want %d to %d", at, before, after)
	}
	if id[6]>>4 != 7 || id[8]>>6 != 0b10 {
		t.Errorf("version %d, variant %b", id[6]>>4, id[8]>>6)
	}
}

// TestIDsAreUnique though the clock stands still, as it does in a bubble: that
// is no better than one that steps back.
func TestIDsAreUnique(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := map[[16]byte]bool{}
		for range 100000 {
			id := ids.New()
			if seen[id] {
				t.Fatalf("%x came twice", id)
			}
			seen[id] = true
		}
		if begun := time.Now(); time.Since(begun) != 0 {
			t.Error("the clock did not stand still")
		}
	})
}

// TestC019ClockStepsBack: ids go on without a pause or a repetition when the
// clock steps back, by 26 years here, and forward again.
func TestC019ClockStepsBack(t *testing.T) {
	t.Parallel()
	seen := map[[16]byte]bool{}
	some := func() (at uint64) {
		for range 10000 {
			id := ids.New()
			if seen[id] {
				t.Fatalf("%x came twice", id)
			}
			seen[id] = true
			at = binary.BigEndian.Uint64(id[:]) >> 16
		}
		return at
	}
	now := some()
	var back uint64
	synctest.Test(t, func(*testing.T) { back = some() })
	if again := some(); back >= now || again < now {
		t.Errorf("the ids are of %d, %d and %d ms: the clock did not step", now, back, again)
	}
}

// TestRandomBitsAreUsed: no bit of the random part is always the same.
func TestRandomBitsAreUsed(t *testing.T) {
	t.Parallel()
	var ones, zeros [16]byte
	for range 1000 {
		id := ids.New()
		for i := range id {
			ones[i] |= id[i]
			zeros[i] |= ^id[i]
		}
	}
	want := bytes.Repeat([]byte{0xff}, 16)
	want[6], want[8] = 0x0f, 0x3f
	for i := 6; i < 16; i++ {
		if ones[i]&zeros[i] != want[i] {
			t.Errorf("byte %d: bits %08b vary, want %08b", i, ones[i]&zeros[i], want[i])
		}
	}
}

func TestIDsOfLaterMillisecondsSortLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		last := ids.New()
		for range 1000 {
			<-time.After(time.Millisecond)
			id := ids.New()
			if bytes.Compare(last[:], id[:]) >= 0 {
				t.Fatalf("%x is not before %x", last, id)
			}
			last = id
		}
	})
}

func TestNumbersArePositiveAndOfSixtyTwoBits(t *testing.T) {
	t.Parallel()
	seen, most := map[int64]bool{}, int64(0)
	for range 10000 {
		n := ids.Number()
		if n <= 0 || n >= 1<<62 || seen[n] {
			t.Fatalf("number %d, seen before: %v", n, seen[n])
		}
		seen[n], most = true, max(most, n)
	}
	if most < 1<<61 {
		t.Errorf("none of 10,000 numbers uses the highest bit; the largest is %d", most)
	}
}
