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

// dialectHealth only reads, along the indexes on due times.
type dialectHealth interface {
	// waiting answers with group, microseconds until it is due, microseconds since
	// it was added, status, and the number of unmatched rows (up to most), of the
	// first row of each owner, group and subscriber.
	waiting(b storage.Box, version string, most int) query
	// versions answers with version, number of unfinished rows (up to most), and
	// whether an instance lives.
	versions(b storage.Box, most int) query
}

// Waiting implements storage.Inspector.
func (s *Store) Waiting(ctx context.Context, b storage.Box, version string, most int) ([]storage.Waiting, error) {
	var firsts []firstRow
	err := s.inspect(ctx, b, most, func() query { return s.d.waiting(b, version, most) }, func() { firsts = nil }, func(rows *sql.Rows) error {
		var f firstRow
		err := rows.Scan(&f.group, &f.in, &f.age, &f.status, &f.unmatched)
		firsts = append(firsts, f)
		return err
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

// waitingOf puts the rows of each group together.
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
		w.Unmatched = min(most, w.Unmatched+f.unmatched)
	}
	return list
}

// Versions implements storage.Inspector.
func (s *Store) Versions(ctx context.Context, b storage.Box, most int) ([]storage.VersionRows, error) {
	var list []storage.VersionRows
	err := s.inspect(ctx, b, most, func() query { return s.d.versions(b, most) }, func() { list = nil }, func(rows *sql.Rows) error {
		var v storage.VersionRows
		err := rows.Scan(&v.Version, &v.Rows, &v.Living)
		list = append(list, v)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("gormstore: versions in %s: %w", b, err)
	}
	return list, nil
}

// inspect reads an answer; again forgets what was read before a repetition.
func (s *Store) inspect(ctx context.Context, b storage.Box, most int, q func() query, again func(), f func(*sql.Rows) error) error {
	switch {
	case s.err != nil:
		return s.err
	case b != storage.Outbox && b != storage.Inbox:
		return fmt.Errorf("there is no box %s", b)
	case most < 1:
		return fmt.Errorf("the limit %d is not positive", most)
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.untilFree(ctx, func() error {
		again()
		return q().each(ctx, s.looks, f)
	})
}
