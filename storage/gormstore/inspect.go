package gormstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

var _ storage.Inspector = (*Store)(nil)

// keysInspected is of how many keys of a lane the first row is looked at. Those
// behind it wait for it.
const keysInspected = 100

// dialectHealth only reads, along the indexes on due times and on keys. A
// database that cannot hop in one statement takes one for each step.
type dialectHealth interface {
	// waiting finds the first row of each owner, group and subscriber.
	waiting(ctx context.Context, db querier, b storage.Box, version string, most int) ([]firstRow, error)
	// waitingKeys finds those of the keys of each group and subscriber.
	waitingKeys(ctx context.Context, db querier, b storage.Box, version string, most int) ([]firstRow, error)
	// versions finds those that have unfinished rows: one may be there more than
	// once, for each index that has some of its rows.
	versions(ctx context.Context, db querier, b storage.Box, most int) ([]storage.VersionRows, error)
}

// Waiting implements storage.Inspector.
func (s *Store) Waiting(ctx context.Context, b storage.Box, version string, most int) ([]storage.Waiting, error) {
	firsts, err := inspect(ctx, s, b, most, func() ([]firstRow, error) {
		firsts, err := s.d.waiting(ctx, s.looks, b, version, most)
		if err != nil {
			return nil, err
		}
		keyed, err := s.d.waitingKeys(ctx, s.looks, b, version, most)
		return append(firsts, keyed...), err
	})
	if err != nil {
		return nil, fmt.Errorf("gormstore: waiting rows of %s: %w", b, err)
	}
	return waitingOf(firsts, most), nil
}

// firstRow is the first of the rows of an owner in a lane.
type firstRow struct {
	group     string
	in, age   int64 // microseconds until it is due, and since it was added
	status    storage.Status
	unmatched int
}

// waitingOf puts the rows of each group together. Each that tells of unmatched
// rows has counted those of its group.
func waitingOf(firsts []firstRow, most int) []storage.Waiting {
	slices.SortFunc(firsts, func(a, b firstRow) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.in, b.in)) })
	var list []storage.Waiting
	for i, f := range firsts {
		if i == 0 || f.group != firsts[i-1].group {
			w := storage.Waiting{Group: f.group, Overdue: max(0, -micros(f.in))}
			if f.in <= 0 || f.status == storage.Failed {
				w.Age = max(time.Microsecond, micros(f.age))
			}
			list = append(list, w)
		}
		w := &list[len(list)-1]
		w.Unmatched = min(most, max(w.Unmatched, f.unmatched))
	}
	return list
}

// firstRows reads an answer of group, microseconds until it is due, microseconds
// since it was added, status, and number of unmatched rows.
func (q query) firstRows(ctx context.Context, db querier) ([]firstRow, error) {
	var firsts []firstRow
	err := q.each(ctx, db, func(rows *sql.Rows) error {
		var f firstRow
		err := rows.Scan(&f.group, &f.in, &f.age, &f.status, &f.unmatched)
		firsts = append(firsts, f)
		return err
	})
	return firsts, err
}

// Versions implements storage.Inspector.
func (s *Store) Versions(ctx context.Context, b storage.Box, most int) ([]storage.VersionRows, error) {
	list, err := inspect(ctx, s, b, most, func() ([]storage.VersionRows, error) { return s.d.versions(ctx, s.looks, b, most) })
	if err != nil {
		return nil, fmt.Errorf("gormstore: versions in %s: %w", b, err)
	}
	return versionsOf(list, most), nil
}

// versionsOf puts the rows of each version together.
func versionsOf(found []storage.VersionRows, most int) []storage.VersionRows {
	slices.SortFunc(found, func(a, b storage.VersionRows) int { return cmp.Compare(a.Version, b.Version) })
	var list []storage.VersionRows
	for i, v := range found {
		if i == 0 || v.Version != found[i-1].Version {
			list = append(list, storage.VersionRows{Version: v.Version})
		}
		last := &list[len(list)-1]
		last.Rows = min(most, last.Rows+v.Rows)
		last.Living = last.Living || v.Living
	}
	return list
}

// versionRows reads an answer of version, number of rows, and whether an instance
// lives.
func (q query) versionRows(ctx context.Context, db querier) ([]storage.VersionRows, error) {
	var list []storage.VersionRows
	err := q.each(ctx, db, func(rows *sql.Rows) error {
		var v storage.VersionRows
		err := rows.Scan(&v.Version, &v.Rows, &v.Living)
		list = append(list, v)
		return err
	})
	return list, err
}

// inspect reads, and again while the database is busy.
func inspect[T any](ctx context.Context, s *Store, b storage.Box, most int, read func() ([]T, error)) (found []T, err error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case b != storage.Outbox && b != storage.Inbox:
		return nil, fmt.Errorf("there is no box %s", b)
	case most < 1:
		return nil, fmt.Errorf("the limit %d is not positive", most)
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	err = s.untilFree(ctx, func() (err error) {
		found, err = read()
		return err
	})
	return found, err
}
