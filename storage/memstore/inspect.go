package memstore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

var _ storage.Inspector = (*Store)(nil)

// Waiting implements storage.Inspector.
func (s *Store) Waiting(ctx context.Context, b storage.Box, version string, most int) ([]storage.Waiting, error) {
	t, err := s.inspected(ctx, b, most)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	byGroup := map[string]*row{}
	groups := map[string]storage.Waiting{}
	for key, o := range t.unfinished() {
		first := o.first().row
		if old := byGroup[key.group]; key.version == version &&
			(old == nil || first.due < old.due || first.due == old.due && first.seq < old.seq) {
			byGroup[key.group] = first
		}
	}
	for group, r := range byGroup {
		groups[group] = waiting(group, r, now)
	}
	for key, o := range t.waiting {
		if w, ok := groups[key.group]; ok && key.version == version {
			w.Unmatched = min(o.count, most)
			groups[key.group] = w
		}
	}
	list := make([]storage.Waiting, 0, len(groups))
	for _, w := range groups {
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b storage.Waiting) int { return cmp.Compare(a.Group, b.Group) })
	return list, nil
}

// unfinished has all open rows: by owner, and those with a key by key, whose
// first the others wait for.
func (t *table) unfinished() iter.Seq2[laneKey, *order] {
	return func(yield func(laneKey, *order) bool) {
		for lane, owners := range t.lanes {
			for _, o := range owners {
				if !yield(lane, o) {
					return
				}
			}
		}
		for lane, keys := range t.keyed {
			for _, o := range keys {
				if !yield(lane, o) {
					return
				}
			}
		}
	}
}

// waiting tells of a group whose earliest row is r.
func waiting(group string, r *row, now time.Duration) storage.Waiting {
	w := storage.Waiting{Group: group, Overdue: max(0, now-r.due)}
	if r.due <= now || r.Status == storage.Failed {
		w.Age = now - r.added
	}
	return w
}

// Versions implements storage.Inspector.
func (s *Store) Versions(ctx context.Context, b storage.Box, most int) ([]storage.VersionRows, error) {
	t, err := s.inspected(ctx, b, most)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := map[string]int{}
	for key, o := range t.unfinished() {
		rows[key.version] += o.count
	}
	list := make([]storage.VersionRows, 0, len(rows))
	for version, n := range rows {
		list = append(list, storage.VersionRows{Version: version, Rows: min(n, most), Living: s.served(b, version)})
	}
	slices.SortFunc(list, func(a, b storage.VersionRows) int { return cmp.Compare(a.Version, b.Version) })
	return list, nil
}

// served reports whether an instance of a box and version lives.
func (s *Store) served(b storage.Box, version string) bool {
	now := s.now()
	for _, m := range s.members {
		if m.in.Box == b && m.in.Version == version && !m.ended && now < m.until {
			return true
		}
	}
	return false
}

func (s *Store) inspected(ctx context.Context, b storage.Box, most int) (*table, error) {
	if most < 1 {
		return nil, fmt.Errorf("memstore: inspect: %w", errLimit)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.table(b)
}
