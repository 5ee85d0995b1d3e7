package gormstore

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

// Due implements storage.Member.
func (m *member) Due(ctx context.Context, q storage.Query) ([]*storage.Record, time.Duration, error) {
	r := reader{next: -1}
	if len(q.IDs) > 0 {
		if err := m.dueByID(ctx, &r, q.IDs); err != nil {
			return nil, -1, m.failed("due", err)
		}
		return r.recs, -1, nil
	}
	if err := checkLanes(m.box, q.Lanes); err != nil {
		return nil, -1, m.failed("due", err)
	}
	r.limit = q.MaxBytes
	lanes := q.Lanes
	if q.MaxBytes > 0 && len(lanes) > 1 {
		lanes = rotated(lanes)
	}
	err := batches(lanes, lanesPer, func(part []storage.Lane) error {
		if r.full() {
			return nil
		}
		return m.look(ctx, &r, m.s.d.due(m.box, m.version, m.number, part, q.MaxBytes))
	})
	if err != nil {
		return nil, -1, m.failed("due", err)
	}
	byPlace(r.recs)
	return r.recs, r.next, nil
}

func (m *member) dueByID(ctx context.Context, r *reader, list []storage.ID) error {
	err := batches(unique(list), rowsPer, func(part []storage.ID) error {
		return m.look(ctx, r, m.s.d.byID(m.box, part, m.number))
	})
	byPlace(r.recs)
	return err
}

// look runs a query on the reading pool and collects its rows.
func (m *member) look(ctx context.Context, r *reader, q query) error {
	return m.s.untilFree(ctx, func() error {
		had := *r
		err := q.into(ctx, m.s.looks, r)
		if err != nil {
			*r = had
		}
		return err
	})
}

// rotated starts at a random lane, so that a limit of bytes cuts now one lane,
// now another.
func rotated(lanes []storage.Lane) []storage.Lane {
	k := rand.IntN(len(lanes)) //nolint:gosec // fairness
	return append(slices.Clone(lanes[k:]), lanes[:k]...)
}

func checkLanes(b storage.Box, lanes []storage.Lane) error {
	for _, l := range lanes {
		switch {
		case l.Limit < 1:
			return errors.New("a lane's limit is not positive")
		case b == storage.Outbox && (l.Group != "" || l.Subscriber != ""):
			return errors.New("the outbox has but one lane, without group and subscriber")
		}
	}
	return nil
}

// byPlace sorts by the order of taking.
func byPlace(recs []*storage.Record) {
	slices.SortFunc(recs, func(a, b *storage.Record) int {
		return cmp.Or(a.Position.DueAt.Compare(b.Position.DueAt), cmp.Compare(a.Position.Seq, b.Position.Seq))
	})
}

// unique returns the ids, or keys, without repetitions.
func unique[T comparable](list []T) []T {
	seen := make(map[T]bool, len(list))
	out := make([]T, 0, len(list))
	for _, id := range list {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// paddedArgs repeats the last id until the list is as long as padded says.
func paddedArgs(list []storage.ID) []any {
	args := idArgs(list)
	for n := padded(len(list), rowsPer); len(args) < n; {
		args = append(args, list[len(list)-1][:])
	}
	return args
}
