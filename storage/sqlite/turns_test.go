package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
)

// waiting is how many wait for the turn, the urgent ones and the others.
func (t *turns) waiting() (urgent, others int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.queues[0].Len(), t.queues[1].Len()
}

func (t *turns) until(tb testing.TB, urgent, others int) {
	tb.Helper()
	for begun := time.Now(); time.Since(begun) < 20*time.Second; runtime.Gosched() {
		if u, o := t.waiting(); u == urgent && o == others {
			return
		}
	}
	u, o := t.waiting()
	tb.Errorf("%d urgent ones and %d others wait, want %d and %d", u, o, urgent, others)
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// TestHeartbeatsGoBeforeOtherWriters: however many wait, who is writing is the
// only one that a heartbeat waits for, or an application that writes a lot
// would cost the lease.
func TestHeartbeatsGoBeforeOtherWriters(t *testing.T) {
	t.Parallel()
	const writers = 200
	s, err := Open(filepath.Join(t.TempDir(), "cap.db"), Config{Synchronous: "NORMAL", BusyTimeout: time.Minute})
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	check(t, s.Migrate(t.Context()))
	in := storage.Instance{Box: storage.Outbox, Version: "v1", Lease: time.Minute}
	beats, err := s.Join(t.Context(), in)
	check(t, err)
	leaves, err := s.Join(t.Context(), in)
	check(t, err)
	p := s.DB().ConnPool.(*pool)
	held := s.DB().Begin()
	check(t, held.Error)
	check(t, held.Exec("UPDATE cap_instances SET beat_at = 0").Error)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			err := s.DB().Transaction(func(tx *gorm.DB) error {
				var joined, beaten, left int
				err := tx.Raw("SELECT count(*), sum(beat_at > 0), sum(ended_at IS NOT NULL) FROM cap_instances").
					Row().Scan(&joined, &beaten, &left)
				if joined != 3 || beaten != 2 || left != 1 {
					t.Errorf("a writer that waited was first: %d joined, %d have beaten, %d left", joined, beaten, left)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	p.turns.until(t, 0, writers)
	for _, f := range []func() error{
		func() error { return beats.Beat(t.Context()) },
		func() error { return leaves.Leave(t.Context()) },
		func() error { _, err := s.Join(t.Context(), in); return err },
	} {
		wg.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	p.turns.until(t, 3, writers)
	check(t, held.Commit().Error)
	wg.Wait()
}

// TestWritersTakeTurns: who came first writes first, so that nobody starves
// behind those who ask again at once. They get equal shares then; served at
// random they would differ by about 24.
func TestWritersTakeTurns(t *testing.T) {
	t.Parallel()
	s, err := Open(filepath.Join(t.TempDir(), "turns.db"), Config{Synchronous: "NORMAL", BusyTimeout: time.Minute})
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	const writers, all = 20, 800
	var total atomic.Int64
	var shares [writers]int
	var wg sync.WaitGroup
	held := s.DB().Begin()
	check(t, held.Error)
	for i := range writers {
		wg.Go(func() {
			for total.Add(1) <= all {
				if err := s.DB().Transaction(func(*gorm.DB) error { return nil }); err != nil {
					t.Error(err)
				}
				shares[i]++
			}
		})
	}
	s.DB().ConnPool.(*pool).turns.until(t, 0, writers)
	check(t, held.Rollback().Error)
	wg.Wait()
	if least, most := slices.Min(shares[:]), slices.Max(shares[:]); most-least > 8 {
		t.Errorf("shares of %v", shares)
	}
}

// TestTurnsAreInOrderOfEachLane, the urgent lane first.
func TestTurnsAreInOrderOfEachLane(t *testing.T) {
	t.Parallel()
	var q turns
	check(t, q.take(t.Context()))
	urgent := (*pool)(nil).Urgent(t.Context())
	var order []int // guarded by the turn
	var wg sync.WaitGroup
	for i, ctx := range []context.Context{t.Context(), urgent, t.Context(), urgent} {
		u, o := q.waiting()
		wg.Go(func() {
			if err := q.take(ctx); err != nil {
				t.Error(err)
			}
			order = append(order, i)
			q.give()
		})
		if i%2 == 0 {
			q.until(t, u, o+1)
		} else {
			q.until(t, u+1, o)
		}
	}
	q.give()
	wg.Wait()
	if !slices.Equal(order, []int{1, 3, 0, 2}) {
		t.Errorf("in the order %v", order)
	}
}

// TestATurnIsNotLostWithWhoGivesUp, even at the moment at which it is his.
func TestATurnIsNotLostWithWhoGivesUp(t *testing.T) {
	t.Parallel()
	var q turns
	for range 2000 {
		check(t, q.take(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				switch err := q.take(ctx); {
				case err == nil:
					q.give()
				case !errors.Is(err, context.Canceled):
					t.Error(err)
				}
			})
		}
		wg.Go(cancel)
		q.give()
		wg.Wait()
		if u, o := q.waiting(); q.taken || u+o > 0 {
			t.Fatalf("taken %t, %d and %d wait", q.taken, u, o)
		}
	}
}
