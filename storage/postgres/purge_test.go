package postgres_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// expired fills the outbox with so many rows that have expired, and as many of
// each kind that must stay.
const expired = `INSERT INTO cap_published (id, version, name, status, due_at, owner, added_at, updated_at, expires_at, headers, body)
	SELECT gen_random_uuid(), 'v1', kind, status, CASE WHEN due THEN now() END, CASE WHEN due THEN 99 END, now(), now(),
	now() + i * interval '1 us' + expiry, '{}', '{}' FROM generate_series(1, ?) AS i CROSS JOIN (VALUES
	('old', 2, false, interval '-1 h'), ('old', 3, false, interval '-1 h'), ('young', 2, false, interval '1 h'),
	('open', 0, true, NULL), ('failed', 3, true, NULL), ('callback', 3, true, interval '-1 h')) AS k(kind, status, due, expiry)`

// purgeAll purges until a batch is not full.
func purgeAll(ctx context.Context, s *gormstore.Store, limit int) (total int, err error) {
	for {
		n, err := s.Purge(ctx, storage.Purge{Box: storage.Outbox, Version: version, Limit: limit})
		if total += n; err != nil || n < limit {
			return total, err
		}
	}
}

// TestPurgeTakesWhatIsFinalAlone, with five purging at once and others that send.
func TestPurgeTakesWhatIsFinalAlone(t *testing.T) {
	t.Parallel()
	const each, purgers = 2000, 5
	s := newStore(t, quiet())
	must(t, s.DB().Exec(expired, each).Error)
	m := join(t, s, storage.Outbox)
	var total atomic.Int64
	var purging, sending sync.WaitGroup
	for range purgers {
		purging.Go(func() {
			n, err := purgeAll(t.Context(), s, 100)
			if err != nil {
				t.Error(err)
			}
			total.Add(int64(n))
		})
	}
	over := make(chan struct{})
	sent := 0
	sending.Go(func() {
		for {
			r := outgoing(m.Number())
			if err := appendTo(t.Context(), s, r); err != nil {
				t.Error(err)
			}
			lost, err := m.Settle(t.Context(), storage.Outcome{ID: r.ID, Kind: storage.Succeed, After: time.Hour})
			if err != nil || len(lost) > 0 {
				t.Errorf("lost %v: %v", lost, err)
			}
			sent++
			select {
			case <-over:
				return
			default:
			}
		}
	})
	purging.Wait()
	close(over)
	sending.Wait()
	// A purger that finds what is left locked by others goes away with less.
	rest, err := purgeAll(t.Context(), s, 100)
	must(t, err)
	if n := int(total.Load()) + rest; n != 2*each {
		t.Errorf("%d rows were purged, want %d", n, 2*each)
	}
	for kind, want := range map[string]int{"old": 0, "young": each, "open": each, "failed": each, "callback": each, "orders.created": sent} {
		if n := count(t, s, `SELECT count(*) FROM cap_published WHERE name = ?`, kind); n != want {
			t.Errorf("%d rows %s, want %d", n, kind, want)
		}
	}
}

// TestPurgeDoesNotWait for rows that somebody holds, nor do others for it.
func TestPurgeDoesNotWait(t *testing.T) {
	t.Parallel()
	s := newStore(t, quiet(), "lock_timeout=1")
	must(t, s.DB().Exec(expired, 10).Error)
	tx := s.DB().Begin()
	must(t, tx.Error)
	must(t, tx.Exec(`SELECT 1 FROM cap_published WHERE name = 'old' ORDER BY expires_at LIMIT 5 FOR UPDATE`).Error)
	n, err := purgeAll(t.Context(), s, 3)
	must(t, err)
	if n != 15 {
		t.Errorf("%d rows, want 15", n)
	}
	must(t, tx.Rollback().Error)
}

// BenchmarkPurge measures rows a second with the default batch. "held" is with a
// session that keeps an old snapshot, as a backup does: what was deleted cannot
// be forgotten.
func BenchmarkPurge(b *testing.B) {
	const rows = 100_000
	for _, held := range []bool{false, true} {
		b.Run(map[bool]string{false: "free", true: "held"}[held], func(b *testing.B) {
			s := newStore(b, quiet())
			for b.Loop() {
				b.StopTimer()
				run(b, s, `TRUNCATE cap_published`)
				must(b, s.DB().Exec(`INSERT INTO cap_published (id, version, name, status, added_at, updated_at, expires_at,
					headers, body) SELECT gen_random_uuid(), 'v1', 'old', 2, now(), now(), now() - i * interval '1 us', '{}',
					repeat('x', 500)::bytea FROM generate_series(1, ?) AS i`, rows).Error)
				tx := s.DB().Begin()
				if held {
					must(b, tx.Exec(`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`).Error)
					must(b, tx.Exec(`SELECT count(*) FROM cap_published`).Error)
				}
				b.StartTimer()
				n, err := purgeAll(b.Context(), s, 1000)
				must(b, err)
				if n != rows {
					b.Fatal(n)
				}
				must(b, tx.Rollback().Error)
			}
			b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
