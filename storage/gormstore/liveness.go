package gormstore

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/capbus/gocap/storage"
)

// heartbeat is a row of instances that has not ended.
type heartbeat struct {
	number, beat, lease int64 // beat and lease in microseconds
	expired             bool  // run out by the database's clock
}

// watch remembers since when heartbeats have stood still by this process's own
// monotonic clock: the database's clock may be set back, and would then keep a
// dead instance alive for as long.
type watch struct {
	mu   sync.Mutex
	seen map[int64]sighting
}

type sighting struct {
	beat  int64
	since time.Time
}

// runOut returns the heartbeats, read between the two moments, that have run
// out by either clock, and remembers the others.
func (w *watch) runOut(beats []heartbeat, before, after time.Time) []heartbeat {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := make(map[int64]sighting, len(beats))
	var out []heartbeat
	for _, b := range beats {
		s, known := w.seen[b.number]
		if !known || s.beat != b.beat {
			s = sighting{beat: b.beat, since: after}
		}
		seen[b.number] = s
		if b.expired || before.Sub(s.since) > micros(b.lease) {
			out = append(out, b)
		}
	}
	w.seen = seen
	return out
}

// runOut looks for heartbeats that have run out. It is storage.ErrLost when the
// looker's own has ended or run out: others may have its rows.
func (s *Store) runOut(ctx context.Context, q querier, own int64) ([]heartbeat, error) {
	before := time.Now()
	beats, err := s.heartbeats(ctx, q)
	if err != nil {
		return nil, err
	}
	return s.judge(beats, own, before, time.Now())
}

// judge tells which heartbeats, read between the two moments, have run out; see
// runOut.
func (s *Store) judge(beats []heartbeat, own int64, before, after time.Time) ([]heartbeat, error) {
	i := slices.IndexFunc(beats, func(b heartbeat) bool { return b.number == own })
	if i < 0 || beats[i].expired {
		return nil, storage.ErrLost
	}
	return s.watch.runOut(slices.Delete(beats, i, i+1), before, after), nil
}

func (s *Store) heartbeats(ctx context.Context, q querier) ([]heartbeat, error) {
	var beats []heartbeat
	err := s.d.running().each(ctx, q, func(rows *sql.Rows) error {
		var b heartbeat
		err := rows.Scan(&b.number, &b.beat, &b.lease, &b.expired)
		beats = append(beats, b)
		return err
	})
	return beats, err
}

// ending says how an instance ended; a gone heartbeat has none.
type ending struct{ living, died bool }

func (s *Store) endings(ctx context.Context, q querier, numbers []int64) (map[int64]ending, error) {
	found := make(map[int64]ending, len(numbers))
	err := batches(numbers, rowsPer, func(part []int64) error {
		return s.d.endings(part).each(ctx, q, func(rows *sql.Rows) error {
			var n int64
			var e ending
			err := rows.Scan(&n, &e.living, &e.died)
			found[n] = e
			return err
		})
	})
	return found, err
}
