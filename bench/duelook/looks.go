package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// backlog is how many rows are due when a look finds some.
const backlog = 1000

// set is a store with its tables.
type set struct {
	store   *gormstore.Store
	rows    int
	out, in storage.Member
	known   []storage.ID
}

func (s *set) join(ctx context.Context) (err error) {
	if s.out, err = s.store.Join(ctx, instance(storage.Outbox)); err != nil {
		return err
	}
	s.in, err = s.store.Join(ctx, instance(storage.Inbox))
	return err
}

func instance(b storage.Box) storage.Instance {
	return storage.Instance{Box: b, Version: "v1", Lease: time.Hour}
}

// close drops the tables.
func (s *set) close(keep bool) error {
	var err error
	if !keep {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = s.store.MigrateDown(ctx, 0)
	}
	return errors.Join(err, s.store.Close())
}

// fillBacklog makes rows that are due.
func (s *set) fillBacklog(ctx context.Context) error {
	var out, in []*storage.Record
	for i := range backlog {
		r := storage.Record{ID: ids.New(), Version: "v1", Topic: "orders.created", Headers: []byte(`{}`), Body: []byte(`{}`)}
		a, b := r, r
		a.Owner = s.out.Number()
		b.Group, b.Subscriber, b.MessageID = "g", "s", fmt.Sprint("due ", i)
		out, in = append(out, &a), append(in, &b)
		s.known = append(s.known, r.ID)
	}
	err := s.store.DB().WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		w, err := s.store.Bind(tx)
		if err != nil {
			return err
		}
		return w.Append(ctx, out...)
	})
	if err != nil {
		return err
	}
	_, err = s.in.Accept(ctx, in...)
	return err
}

// look is something that is done again and again.
type look struct {
	name string
	f    func(ctx context.Context, s *set) (int, error)
}

func lane(limit int) storage.Query { return storage.Query{Lanes: []storage.Lane{{Limit: limit}}} }

func inLane(limit int) storage.Query {
	return storage.Query{Lanes: []storage.Lane{{Group: "g", Subscriber: "s", Limit: limit}}}
}

func due(m func(*set) storage.Member, q func(*set) storage.Query) func(context.Context, *set) (int, error) {
	return func(ctx context.Context, s *set) (int, error) {
		recs, _, err := m(s).Due(ctx, q(s))
		return len(recs), err
	}
}

func takeOver(m func(*set) storage.Member, q storage.Query) func(context.Context, *set) (int, error) {
	return func(ctx context.Context, s *set) (int, error) {
		recs, err := m(s).TakeOver(ctx, q)
		return len(recs), err
	}
}

func looks(state string) []look {
	out, in := func(s *set) storage.Member { return s.out }, func(s *set) storage.Member { return s.in }
	of := func(q storage.Query) func(*set) storage.Query { return func(*set) storage.Query { return q } }
	byID := func(s *set) storage.Query { return storage.Query{IDs: s.known[:100]} }
	list := []look{
		{"outbox, due, " + state, due(out, of(lane(500)))},
		{"inbox, due, " + state, due(in, of(inLane(500)))},
		{"outbox, orphans, " + state, takeOver(out, lane(500))},
		{"inbox, orphans, " + state, takeOver(in, inLane(500))},
		{"outbox, purge, " + state, func(ctx context.Context, s *set) (int, error) {
			return s.store.Purge(ctx, storage.Purge{Box: storage.Outbox, Version: "v1", Limit: 1000})
		}},
	}
	if state != idle {
		list = append(list, look{"outbox, 100 ids", due(out, byID)})
	}
	return list
}

// The states of the tables.
const (
	idle = "none due"
	busy = "1000 due"
)

// compare looks into both sets in turns, so that what disturbs one disturbs the
// other.
func compare(ctx context.Context, small, large *set, o options) error {
	fmt.Printf("\n%-28s %6s %14s %14s %7s\n", "look", "rows", fmt.Sprint(small.rows), fmt.Sprint(large.rows), "ratio")
	for _, state := range []string{idle, busy} {
		for _, l := range looks(state) {
			if err := one(ctx, l, small, large, o.runs); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
		if state == idle {
			if err := errors.Join(small.fillBacklog(ctx), large.fillBacklog(ctx)); err != nil {
				return err
			}
		}
	}
	return nil
}

func one(ctx context.Context, l look, small, large *set, runs int) error {
	var times [2][]time.Duration
	found := 0
	for i := range runs + runs/10 {
		for k, s := range []*set{small, large} {
			start := time.Now()
			n, err := l.f(ctx, s)
			if err != nil {
				return err
			}
			if i >= runs/10 { // the first ones fill caches
				times[k] = append(times[k], time.Since(start))
			}
			found = n
		}
	}
	a, b := median(times[0]), median(times[1])
	fmt.Printf("%-28s %6d %11.3f ms %11.3f ms %7.2f\n", l.name, found, ms(a), ms(b), float64(b)/float64(a))
	return nil
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
