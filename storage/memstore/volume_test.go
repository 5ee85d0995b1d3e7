package memstore_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
)

// history leaves n finished rows in the inbox.
func history(tb testing.TB, m storage.Member, n int) {
	tb.Helper()
	const batch = 10_000
	for done := 0; done < n; done += batch {
		recs := make([]*storage.Record, batch)
		for i := range recs {
			var id storage.ID
			binary.BigEndian.PutUint64(id[8:], uint64(done+i))
			recs[i] = &storage.Record{ID: id, Group: "g", Subscriber: "s", MessageID: id.String(), Fault: "over", FaultExpires: time.Hour}
		}
		if fresh, err := m.Accept(tb.Context(), recs...); err != nil || len(fresh) != batch {
			tb.Fatalf("%d records accepted, %v", len(fresh), err)
		}
	}
}

func joinForLong(tb testing.TB, s *memstore.Store, box storage.Box) storage.Member {
	tb.Helper()
	m, err := s.Join(tb.Context(), storage.Instance{Box: box, Version: "v1", Lease: time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// retain publishes n rows and settles them; they expire at once.
func retain(tb testing.TB, s *memstore.Store, m storage.Member, n, bodySize int) {
	tb.Helper()
	const batch = 1000
	for range n / batch {
		tx, err := s.Begin(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		outcomes := make([]storage.Outcome, batch)
		recs := make([]*storage.Record, batch)
		for i := range recs {
			recs[i] = message(m.Number())
			recs[i].Body = make([]byte, bodySize)
			outcomes[i] = storage.Outcome{ID: recs[i].ID, Kind: storage.Succeed, After: time.Millisecond}
		}
		err = errors.Join(tx.Append(tb.Context(), recs...), tx.Commit())
		if _, settled := m.Settle(tb.Context(), outcomes...); errors.Join(err, settled) != nil {
			tb.Fatal(err, settled)
		}
	}
}

// A look that went through the retained rows would take milliseconds. For more
// rows see BenchmarkDue.
func TestRetainedRowsDoNotSlowALook(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	m := joinForLong(t, s, storage.Inbox)
	history(t, m, 100_000)
	accepted(t, m)
	q := storage.Query{Lanes: []storage.Lane{{Group: "g", Subscriber: "s", Limit: 100}}}
	const looks = 1000
	begun := time.Now()
	for range looks {
		if recs, _, err := m.Due(t.Context(), q); err != nil || len(recs) != 1 {
			t.Fatalf("%d rows are due, want 1: %v", len(recs), err)
		}
		if _, err := m.TakeOver(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if each := time.Since(begun) / looks; each > time.Millisecond {
		t.Errorf("a look takes %v", each)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	return int64(ms.HeapAlloc) //nolint:gosec // far below
}

// Not parallel: it measures the heap of the process.
//
//nolint:paralleltest // see above
func TestMemoryGoesBackAfterPurge(t *testing.T) {
	s := memstore.New(memstore.Config{})
	m := joinForLong(t, s, storage.Outbox)
	const rows = 20_000
	before := heap()
	retain(t, s, m, rows, 5000)
	if full := heap() - before; full < rows*5000 {
		t.Errorf("%d rows of 5000 bytes take %d bytes", rows, full)
	}
	deleted, deadline := 0, time.Now().Add(time.Minute)
	for deleted < rows && time.Now().Before(deadline) {
		n, err := s.Purge(t.Context(), storage.Purge{Box: storage.Outbox, Version: "v1", Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		deleted += n
	}
	if deleted != rows {
		t.Fatalf("%d rows were purged", deleted)
	}
	if left := heap() - before; left > 1<<20 {
		t.Errorf("after the purge %d bytes are still in use", left)
	}
	runtime.KeepAlive(s)
}

func BenchmarkDue(b *testing.B) {
	for _, retained := range []int{0, 300_000} {
		b.Run(fmt.Sprint("retained=", retained), func(b *testing.B) {
			s := memstore.New(memstore.Config{})
			m := joinForLong(b, s, storage.Inbox)
			history(b, m, retained)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := m.Due(b.Context(), lane(100)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPublishAndSettle(b *testing.B) {
	s := memstore.New(memstore.Config{})
	m := joinForLong(b, s, storage.Outbox)
	b.ReportAllocs()
	for b.Loop() {
		tx, err := s.Begin(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		rec := message(m.Number())
		err = errors.Join(tx.Append(b.Context(), rec), tx.Commit())
		if _, settled := m.Settle(b.Context(), storage.Outcome{ID: rec.ID, Kind: storage.Succeed, After: -1}); errors.Join(err, settled) != nil {
			b.Fatal(err, settled)
		}
	}
}
