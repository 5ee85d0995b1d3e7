package memstore

import (
	"maps"
	"time"

	"github.com/capbus/gocap/storage"
)

var _ storage.Locker = (*Store)(nil)

// CanLock implements storage.Locker.
func (*Store) CanLock() {}

// laneLock is what a lock is for.
type laneLock struct {
	inbox bool
	lane  laneKey
}

type lock struct {
	holder int64
	until  time.Duration
}

// lock takes or renews the lock of a lane, unless another has it.
func (m *member) lock(lane storage.Lane, now time.Duration) bool {
	key := laneLock{m.t.inbox, laneKey{m.in.Version, lane.Group, lane.Subscriber}}
	if l := m.s.locks[key]; l.holder != m.number && l.until > now {
		return false
	}
	m.s.locks[key] = lock{m.number, now + m.in.Lease}
	return true
}

func (m *member) unlock() {
	maps.DeleteFunc(m.s.locks, func(_ laneLock, l lock) bool { return l.holder == m.number })
}
