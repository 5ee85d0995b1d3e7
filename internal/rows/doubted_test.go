package rows

import (
	"testing"

	"github.com/capbus/gocap/storage"
)

// TestRowsOfDeadInstancesDoNotWait: their start is written before they wait, so
// in a long line they would be charged with deaths that are not their own.
func TestRowsOfDeadInstancesDoNotWait(t *testing.T) {
	t.Parallel()
	q := NewQueue(func(string) int { return 1 })
	add := func(line string, c claim) *Row {
		r := &Row{Record: &storage.Record{Topic: line}, claim: c}
		q.Add(line, r)
		return r
	}
	for range 100 {
		add("long", plain)
		add("other", planned)
	}
	first, second := add("long", suspect), add("other", alone)
	for _, want := range []*Row{first, second} {
		key, rs, ok := q.Next(t.Context(), 1)
		if !ok || len(rs) != 1 || rs[0] != want {
			t.Fatalf("a row of %s that its process did not die of goes first", key)
		}
		q.Done(key)
	}
	if n := len(q.Empty()); n != 200 {
		t.Errorf("%d rows are left, want 200", n)
	}
}
