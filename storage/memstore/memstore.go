// Package memstore keeps the outbox and the inbox in the memory of the process,
// for tests and for development. Nothing is durable: what is in it ends with
// the process.
//
// Apart from that it behaves as a database does. Several members, of several
// buses, may share one [Store]; they own rows, lose them and take them over as
// they would in a table. Its clock is monotonic, and it has no goroutines and
// no timers of its own, so that it works inside a testing/synctest bubble (make
// the store inside the bubble, too).
//
// Two things a database does by locks are decided at Commit here: [Tx.Commit].
//
// The slices Headers and Body of the records that it returns are shared between
// readers and must not be written to; everything else in them is a copy.
package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/capbus/gocap/storage"
)

// heartbeatKept is how long the heartbeat of a member that has ended is kept.
const heartbeatKept = 24 * time.Hour

// Store is a storage in memory. Make one with New; all its methods may be
// called concurrently.
type Store struct {
	epoch time.Time // the zero of the store's clock

	mu      sync.Mutex
	outbox  *table
	inbox   *table
	members map[int64]*member
	locks   map[laneLock]lock
}

var _ storage.Storage = (*Store)(nil)

// New returns an empty store.
func New(_ Config) *Store {
	return &Store{
		epoch:   time.Now(),
		outbox:  newTable(false),
		inbox:   newTable(true),
		members: map[int64]*member{},
		locks:   map[laneLock]lock{},
	}
}

// now reads the store's clock: the time since it was made.
func (s *Store) now() time.Duration { return time.Since(s.epoch) }

// instant turns a moment of the store's clock into an instant. It carries no
// monotonic reading, so that it comes back as it was whatever the clocks do.
func (s *Store) instant(at time.Duration) time.Time { return s.epoch.Round(0).UTC().Add(at) }

// moment is the inverse of instant.
func (s *Store) moment(t time.Time) time.Duration { return t.Sub(s.epoch) }

func (s *Store) table(box storage.Box) (*table, error) {
	switch box {
	case storage.Outbox:
		return s.outbox, nil
	case storage.Inbox:
		return s.inbox, nil
	}
	return nil, fmt.Errorf("memstore: no such box: %v", box)
}

// Purge implements storage.Storage. Heartbeats are not counted.
func (s *Store) Purge(ctx context.Context, p storage.Purge) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if p.Limit < 1 {
		return 0, fmt.Errorf("memstore: purge: limit %d is below 1", p.Limit)
	}
	t, err := s.table(p.Box)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	deleted := 0
	for ; deleted < p.Limit; deleted++ {
		n := t.expiring[p.Version].first()
		if n == nil || n.at > now {
			break
		}
		t.remove(n.row)
	}
	t.shrink()
	for number, m := range s.members {
		if m.ended && now-m.endedAt > heartbeatKept {
			delete(s.members, number)
		}
	}
	return deleted, nil
}

// Check implements storage.Storage: memory is always there.
func (s *Store) Check(ctx context.Context) error { return ctx.Err() }

// Records returns a copy of every committed row of a box, in order of their
// insertion: what a SELECT of the whole table shows, for tests and debugging.
func (s *Store) Records(box storage.Box) []*storage.Record {
	t, err := s.table(box)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	recs := make([]*storage.Record, 0, len(t.rows))
	for _, r := range t.rows {
		recs = append(recs, s.read(r, now))
	}
	slices.SortFunc(recs, func(a, b *storage.Record) int { return cmp.Compare(a.Position.Seq, b.Position.Seq) })
	return recs
}
