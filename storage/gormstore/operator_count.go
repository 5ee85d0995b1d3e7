package gormstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/capbus/gocap/storage"
)

// counter sums up what is counted along the indexes.
type counter struct {
	version string
	states  map[storage.State]*storage.StateCount
	lines   map[storage.LineCount]int
}

// Count implements storage.Operator: five walks, each of at most q.Most rows and
// one.
func (s *Store) Count(ctx context.Context, q storage.CountQuery) (storage.Counts, error) {
	if err := cmp.Or(s.err, q.Validate()); err != nil {
		return storage.Counts{}, err
	}
	var c counter
	err := s.untilFree(ctx, func() error {
		in, err := s.d.apart(ctx, s.reader, q.Box, q.Version)
		if err != nil {
			return err
		}
		c = counter{version: q.Version, states: map[storage.State]*storage.StateCount{}, lines: map[storage.LineCount]int{}}
		for st := storage.StateScheduled; st <= storage.StateSucceeded; st++ {
			c.states[st] = &storage.StateCount{State: st}
		}
		for ix, states := range map[opIndex][]storage.State{
			byDue:     {storage.StateScheduled},
			byKey:     {storage.StateScheduled},
			byDelayed: {storage.StateDelayed},
			byFailed:  {storage.StateRetrying, storage.StateFailed},
			byExpiry:  {storage.StateSucceeded},
		} {
			if err := c.along(ctx, s, q, ix, in, states); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return storage.Counts{}, fmt.Errorf("gormstore: count %s: %w", q.Box, err)
	}
	return c.counts(), nil
}

// along takes the rows of the given states from what an index has.
func (c *counter) along(
	ctx context.Context, s *Store, q storage.CountQuery, ix opIndex, in parts, states []storage.State,
) error {
	looked := 0
	err := s.operating(q.Box).count(ix, in, q.Most+1).each(ctx, s.reader, func(rows *sql.Rows) error {
		var version string
		var l storage.LineCount
		var rec storage.Record
		var keyed bool
		var n int
		if err := rows.Scan(&version, &l.Group, &l.Topic, &rec.Status, &rec.Final, &keyed, &n); err != nil {
			return err
		}
		looked += n
		l.State = rec.State()
		count := c.states[l.State]
		if !slices.Contains(states, l.State) || ix == byKey && !keyed || c.version != "" && version != c.version {
			return nil
		}
		count.Rows += n
		if l.State != storage.StateSucceeded {
			c.lines[l] += n
		}
		return nil
	})
	for _, st := range states {
		n := c.states[st]
		n.More = n.More || looked > q.Most || n.Rows > q.Most
		n.Rows = min(n.Rows, q.Most)
	}
	return err
}

func (c *counter) counts() storage.Counts {
	var out storage.Counts
	for st := storage.StateScheduled; st <= storage.StateSucceeded; st++ {
		out.States = append(out.States, *c.states[st])
	}
	for l, n := range c.lines {
		l.Rows = n
		out.Lines = append(out.Lines, l)
	}
	slices.SortFunc(out.Lines, func(a, b storage.LineCount) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic))
	})
	return out
}
