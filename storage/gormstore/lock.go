package gormstore

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

var _ storage.Locker = (*Store)(nil)

// CanLock implements storage.Locker.
func (*Store) CanLock() {}

// lockName names the lock of a lane. No name has the separator in it twice with
// the same neighbours: versions have no such character, and a group or
// subscriber with one would only share a lock.
func (m *member) lockName(l storage.Lane) string {
	const sep = "\x1f"
	name := m.version + sep + m.box.String()
	if m.box == storage.Inbox {
		name += sep + l.Group + sep + l.Subscriber
	}
	return name
}

// hold takes or renews the locks of lanes, and returns those that the member
// holds. It writes when a lock is free, or half of its time is over: it is set
// to the lease from now, never to more.
func (m *member) hold(ctx context.Context, lanes []storage.Lane) ([]storage.Lane, error) {
	names := make([]string, len(lanes))
	for i, l := range lanes {
		names[i] = m.lockName(l)
	}
	left, err := m.locks(ctx, m.s.looks, names)
	if err != nil {
		return nil, err
	}
	var want []string
	for _, name := range names {
		l, known := left[name]
		if !known || l.left <= 0 || l.holder == m.number && l.left < m.lease/2 {
			want = append(want, name)
		}
	}
	if len(want) > 0 {
		slices.Sort(want)
		err = m.s.inTx(ctx, func(ctx context.Context, tx conn) error {
			_, err := m.s.d.acquire(slices.Compact(want), m.number, m.lease.Microseconds()).changed(ctx, tx)
			if err != nil {
				return err
			}
			left, err = m.locks(ctx, tx, names)
			return err
		})
	}
	return m.held(lanes, left), err
}

// held returns the lanes whose lock is the member's.
func (m *member) held(lanes []storage.Lane, left map[string]lockState) []storage.Lane {
	var mine []storage.Lane
	for _, l := range lanes {
		if s := left[m.lockName(l)]; s.holder == m.number && s.left > 0 {
			mine = append(mine, l)
		}
	}
	return mine
}

// lockState is who holds a lock, and for how long.
type lockState struct {
	holder int64
	left   time.Duration
}

func (m *member) locks(ctx context.Context, db querier, names []string) (map[string]lockState, error) {
	found := make(map[string]lockState, len(names))
	err := batches(names, rowsPer, func(part []string) error {
		return m.s.d.lockStates(part).each(ctx, db, func(rows *sql.Rows) error {
			var name string
			var holder, left int64
			err := rows.Scan(&name, &holder, &left)
			found[name] = lockState{holder, micros(left)}
			return err
		})
	})
	return found, err
}
