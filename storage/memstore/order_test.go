package memstore

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) } //nolint:gosec // no secret

func comparePos(a, b pos) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) }

func (o *order) all() (places []pos) {
	for n := o.first(); n != nil; n = n.next[0] {
		places = append(places, n.pos)
	}
	return places
}

// TestOrderAgainstASlice compares the skip list with a sorted slice.
func TestOrderAgainstASlice(t *testing.T) {
	t.Parallel()
	rnd := seeded(1)
	var o order
	var want []pos
	for step := range 20_000 {
		p := pos{at: time.Duration(rnd.IntN(50)), seq: rnd.Int64N(40)}
		i, found := slices.BinarySearchFunc(want, p, comparePos)
		switch {
		case !found && rnd.IntN(3) > 0:
			want = slices.Insert(want, i, p)
			o.insert(p, &row{seq: p.seq})
		case found:
			want = slices.Delete(want, i, i+1)
			o.remove(p)
		default:
			o.remove(p) // not there
		}
		if o.count != len(want) {
			t.Fatalf("step %d: %d rows, want %d", step, o.count, len(want))
		}
		probe := pos{at: time.Duration(rnd.IntN(52)) - 1, seq: rnd.Int64N(42) - 1}
		j, exact := slices.BinarySearchFunc(want, probe, comparePos)
		if exact {
			j++
		}
		got := o.behind(probe)
		if (got == nil) != (j == len(want)) || got != nil && got.pos != want[j] {
			t.Fatalf("step %d: behind %v stands %v", step, probe, got)
		}
		if step%500 == 0 && !slices.Equal(o.all(), want) {
			t.Fatalf("step %d: the order is wrong", step)
		}
	}
	for _, p := range want {
		if n := o.behind(pos{p.at, p.seq - 1}); n == nil || n.row.seq != p.seq {
			t.Fatalf("at %v stands another row", p)
		}
	}
}

func TestOrderIsWalkedWhileRowsLeave(t *testing.T) {
	t.Parallel()
	var o order
	for i := range 100 {
		o.insert(pos{seq: int64(i)}, nil)
	}
	var seen []int64
	for n := o.behind(start); n != nil; n = n.next[0] {
		seen = append(seen, n.seq)
		o.remove(n.pos)
	}
	if len(seen) != 100 || !slices.IsSorted(seen) || o.count != 0 || o.first() != nil {
		t.Errorf("%d rows seen, %d left", len(seen), o.count)
	}
}

func TestNilOrderIsEmpty(t *testing.T) {
	t.Parallel()
	var o *order
	if o.first() != nil || o.behind(start) != nil {
		t.Error("a nil order has rows")
	}
}

func TestPlusDoesNotOverflow(t *testing.T) {
	t.Parallel()
	const most, least = time.Duration(1<<63 - 1), time.Duration(-1 << 63)
	for _, c := range []struct{ a, b, want time.Duration }{
		{1, 2, 3}, {time.Hour, most, most}, {-time.Hour, least, least}, {-1, -2, -3}, {most, -1, most - 1},
	} {
		if got := plus(c.a, c.b); got != c.want {
			t.Errorf("plus(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
