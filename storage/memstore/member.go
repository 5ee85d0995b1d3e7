package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
)

// member is an owner of rows of one box.
type member struct {
	s      *Store
	t      *table
	in     storage.Instance
	number int64

	// Guarded by s.mu.
	until   time.Duration // end of the lease
	ended   bool
	endedAt time.Duration
	died    bool // ended because the lease ran out
}

var _ storage.Member = (*member)(nil)

// Join implements storage.Storage.
func (s *Store) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := s.table(in.Box)
	if err != nil {
		return nil, err
	}
	if in.Lease <= 0 {
		return nil, fmt.Errorf("memstore: join: lease %v is not positive", in.Lease)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, other := range s.members {
		if !other.ended && now < other.until && differ(in, other.in) {
			return nil, fmt.Errorf("memstore: join: %w: %s %s, not %s %s", storage.ErrDestination,
				other.in.Transport, other.in.Destination, in.Transport, in.Destination)
		}
	}
	m := &member{s: s, t: t, in: in, number: ids.Number(), until: plus(now, in.Lease)}
	for s.members[m.number] != nil {
		m.number = ids.Number()
	}
	s.members[m.number] = m
	return m, nil
}

// differ says whether two instances must not live at the same time.
func differ(a, b storage.Instance) bool {
	return a.Box == b.Box && a.Version == b.Version &&
		a.Destination != "" && b.Destination != "" &&
		(a.Transport != b.Transport || a.Destination != b.Destination)
}

// Number implements storage.Member.
func (m *member) Number() int64 { return m.number }

// Beat implements storage.Member. A lease that has run out can be renewed until
// somebody has declared the member dead.
func (m *member) Beat(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.ended {
		return fmt.Errorf("memstore: beat: member %d: %w", m.number, storage.ErrLost)
	}
	m.until = plus(m.s.now(), m.in.Lease)
	return nil
}

// Leave implements storage.Member. It does nothing when the member has ended.
func (m *member) Leave(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if !m.ended {
		m.ended, m.endedAt = true, m.s.now()
	}
	m.unlock()
	return nil
}

// bury declares the members dead whose lease has run out.
func (s *Store) bury(now time.Duration) {
	for _, m := range s.members {
		if !m.ended && now >= m.until {
			m.ended, m.endedAt, m.died = true, now, true
		}
	}
}

// lives says whether an owner lives, once bury has been called.
func (s *Store) lives(owner int64) bool {
	m := s.members[owner]
	return m != nil && !m.ended
}
