package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capbus/gocap/storage"
)

var _ storage.Operator = (*Store)(nil)

// List implements storage.Operator. It looks at every row.
func (s *Store) List(ctx context.Context, f storage.Filter, p storage.Page) (storage.Listing, error) {
	if err := cmp.Or(ctx.Err(), f.Validate(), p.Validate()); err != nil {
		return storage.Listing{}, fmt.Errorf("memstore: list: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.bury(now)
	var rows []*row
	for _, r := range s.boxes(f.Box).rows {
		behind := p.After == 0 || p.Oldest == (r.seq > p.After) && r.seq != p.After
		if behind && s.matches(&f, r) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b *row) int {
		if p.Oldest {
			a, b = b, a
		}
		return cmp.Compare(b.seq, a.seq)
	})
	return s.page(rows, p, now), nil
}

// boxes is as table, of a box that is known to be one.
func (s *Store) boxes(box storage.Box) *table {
	if box == storage.Inbox {
		return s.inbox
	}
	return s.outbox
}

func (s *Store) page(rows []*row, p storage.Page, now time.Duration) storage.Listing {
	var l storage.Listing
	bytes := 0
	for i, r := range rows {
		row := s.operated(r, now)
		if !p.Content {
			row.Headers, row.Body = nil, nil
		}
		bytes += len(row.Headers) + len(row.Body)
		l.Rows = append(l.Rows, row)
		if i+1 < len(rows) && (len(l.Rows) == p.Limit || bytes > storage.MaxPageBytes) {
			l.Next = r.seq
			break
		}
	}
	return l
}

// operated makes the row that an operator gets.
func (s *Store) operated(r *row, now time.Duration) *storage.Row {
	o := &storage.Row{
		Record: s.read(r, now), Bytes: int64(r.size()), AddedAt: s.instant(r.added), OwnerLiving: s.lives(r.Owner),
	}
	if r.open {
		o.DueIn = r.due - now
	}
	if r.Final {
		o.ExpiresAt = s.instant(r.expires)
	}
	return o
}

func (s *Store) matches(f *storage.Filter, r *row) bool {
	message := messageKey(f.MessageID)
	id := r.MessageID
	if f.Box == storage.Outbox {
		id, message = r.ID.String(), strings.ToLower(message)
	}
	is := func(want, got string) bool { return want == "" || want == got }
	added := s.instant(r.added)
	return (len(f.IDs) == 0 || slices.Contains(f.IDs, r.ID)) &&
		(len(f.States) == 0 || slices.Contains(f.States, r.State())) &&
		is(f.Version, r.Version) && is(f.Topic, r.Topic) && is(f.Group, r.Group) && is(f.Subscriber, r.Subscriber) &&
		is(message, id) && strings.HasPrefix(r.Topic, f.TopicPrefix) &&
		!added.Before(f.AddedFrom) && (f.AddedBefore.IsZero() || added.Before(f.AddedBefore))
}

// Change implements storage.Operator.
func (s *Store) Change(ctx context.Context, a storage.Action, f storage.Filter) ([]storage.ID, error) {
	if err := cmp.Or(ctx.Err(), f.Validate()); err != nil {
		return nil, fmt.Errorf("memstore: %s: %w", a, err)
	}
	if a < storage.Requeue || a > storage.Delete {
		return nil, fmt.Errorf("memstore: there is no %s", a)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	t := s.boxes(f.Box)
	var done []storage.ID
	for _, id := range unique(f.IDs) {
		r := t.rows[id]
		if r == nil || !s.matches(&f, r) || s.operated(r, now).Refuses(a) != nil {
			continue
		}
		if a == storage.Requeue {
			t.change(r, func() { r.requeue(now) })
		} else {
			t.remove(r)
		}
		done = append(done, id)
	}
	return done, nil
}

func (r *row) requeue(now time.Duration) {
	r.Status, r.Final, r.Retries, r.Takeovers, r.Owner = storage.Scheduled, false, 0, 0, 0
	r.open, r.due = true, now
}

// Count implements storage.Operator. It looks at every row.
func (s *Store) Count(ctx context.Context, q storage.CountQuery) (storage.Counts, error) {
	if err := cmp.Or(ctx.Err(), q.Validate()); err != nil {
		return storage.Counts{}, fmt.Errorf("memstore: count: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var c storage.Counts
	lines := map[storage.LineCount]int{}
	for st := storage.StateScheduled; st <= storage.StateSucceeded; st++ {
		n := storage.StateCount{State: st}
		for _, r := range s.boxes(q.Box).rows {
			if r.State() != st || q.Version != "" && r.Version != q.Version {
				continue
			}
			if n.Rows == q.Most {
				n.More = true
				break
			}
			n.Rows++
			if st != storage.StateSucceeded {
				lines[storage.LineCount{State: st, Group: r.Group, Topic: r.Topic}]++
			}
		}
		c.States = append(c.States, n)
	}
	for l, n := range lines {
		l.Rows = n
		c.Lines = append(c.Lines, l)
	}
	slices.SortFunc(c.Lines, func(a, b storage.LineCount) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic))
	})
	return c, nil
}
