package memstore_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
)

func dice(n int) int { return rand.IntN(n) } //nolint:gosec // no secret

// worker joins, takes what it finds, settles it, and leaves or dies, again and
// again, until every row is settled.
type worker struct {
	s    *memstore.Store
	left *tally
}

// tally counts how often each row was settled.
type tally struct {
	mu    sync.Mutex
	times map[storage.ID]int
	rows  int
	done  context.CancelFunc
}

func (c *tally) settled(ids map[storage.ID]bool, lost []storage.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range lost {
		delete(ids, id)
	}
	for id := range ids {
		c.times[id]++
	}
	if len(c.times) == c.rows {
		c.done()
	}
}

func (w worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		m, err := w.s.Join(ctx, storage.Instance{Box: storage.Outbox, Version: "v1", Lease: 3 * time.Millisecond})
		if err != nil {
			return
		}
		for range dice(20) {
			own, _, _ := m.Due(ctx, lane(10))
			taken, _ := m.TakeOver(ctx, lane(10))
			_, _ = m.Claim(ctx, append(own, taken...)...)
			ids := map[storage.ID]bool{}
			var outcomes []storage.Outcome
			for _, r := range append(own, taken...) {
				if !ids[r.ID] && dice(3) > 0 {
					ids[r.ID] = true
					outcomes = append(outcomes, storage.Outcome{ID: r.ID, Kind: storage.Succeed, After: time.Hour})
				}
			}
			lost, err := m.Settle(ctx, outcomes...)
			if err == nil {
				w.left.settled(ids, lost)
			}
		}
		if dice(2) == 0 {
			_ = m.Leave(ctx) // else it dies
		}
	}
}

// produce publishes rows of a member of its own, and leaves.
func produce(ctx context.Context, s *memstore.Store, n int) error {
	m, err := s.Join(ctx, storage.Instance{Box: storage.Outbox, Version: "v1", Lease: lease})
	if err != nil {
		return err
	}
	for i := range n {
		rec := message(m.Number())
		if i%2 == 0 {
			rec.Delay = time.Duration(dice(2000)) * time.Microsecond
		}
		if err := commit(ctx, s, rec); err != nil {
			return err
		}
	}
	return m.Leave(ctx)
}

// TestEveryRowEndsOnce: members come, leave and die; no row is settled twice,
// and none is stranded.
func TestEveryRowEndsOnce(t *testing.T) {
	t.Parallel()
	const publishers, each = 3, 500
	s := memstore.New(memstore.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	left := &tally{times: map[storage.ID]int{}, rows: publishers * each, done: cancel}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { worker{s, left}.run(ctx) })
	}
	for range publishers {
		all.Go(func() {
			if err := produce(t.Context(), s, each); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(left.times) != left.rows {
		t.Errorf("%d of %d rows were settled", len(left.times), left.rows)
	}
	for id, n := range left.times {
		if n != 1 {
			t.Errorf("row %v was settled %d times", id, n)
		}
	}
	for _, r := range s.Records(storage.Outbox) {
		if !r.Final || r.Status != storage.Succeeded || r.Owner != 0 {
			t.Errorf("left in the table: %+v", *r)
		}
	}
}
