package gormstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/capbus/gocap/storage"
)

// dialectKeys only read. Heads are answered as readHeads reads them.
type dialectKeys interface {
	// heads finds the heads of keys, or hops over the keys of a lane: one step in
	// the index on keys for each, however many rows it has.
	heads(ctx context.Context, db querier, b storage.Box, version string, q storage.HeadQuery) ([]head, error)
	// keySubscribers hops over the subscribers of unfinished rows with a key.
	keySubscribers(ctx context.Context, db querier, version, group string) ([]string, error)
	// keysOwned answers with a row if one of the numbers owns unfinished rows with
	// a key of a subscription. It may have to read all of them.
	keysOwned(version, group, subscriber string, numbers []int64) query
}

// head is a head as a row of the table.
type head struct {
	storage.Head

	seq, due int64
}

// Heads implements storage.Member.
func (m *member) Heads(ctx context.Context, q storage.HeadQuery) ([]storage.Head, error) {
	if len(q.Keys) == 0 && q.Limit < 1 {
		return nil, m.failed("heads", errors.New("the limit is not positive"))
	}
	var found []head
	err := m.s.untilFree(ctx, func() (err error) {
		found, err = m.heads(ctx, m.s.looks, q)
		return err
	})
	if err != nil {
		return nil, m.failed("heads", err)
	}
	heads := make([]storage.Head, len(found))
	for i, h := range found {
		heads[i] = h.Head
	}
	return heads, nil
}

func (m *member) heads(ctx context.Context, db querier, q storage.HeadQuery) ([]head, error) {
	if len(q.Keys) == 0 {
		return m.s.d.heads(ctx, db, m.box, m.version, q)
	}
	var all []head
	err := batches(unique(q.Keys), rowsPer, func(part []string) error {
		q.Keys = part
		found, err := m.s.d.heads(ctx, db, m.box, m.version, q)
		all = append(all, found...)
		return err
	})
	return all, err
}

// readHeads reads seq, key, id, owner, whether it lives, due time, the wait
// until then, and the size.
func readHeads(ctx context.Context, db querier, q query) ([]head, error) {
	var found []head
	err := q.each(ctx, db, func(rows *sql.Rows) error {
		var h head
		var key, id []byte
		var owner sql.NullInt64
		var wait int64
		if err := rows.Scan(&h.seq, &key, &id, &owner, &h.Living, &h.due, &wait, &h.Bytes); err != nil {
			return err
		}
		copy(h.ID[:], id)
		h.Key, h.Owner, h.DueIn = string(key), owner.Int64, micros(wait)
		found = append(found, h)
		return nil
	})
	return found, err
}

// staleKeys is how many keys of a subscription one look for stale rows sees.
const staleKeys = 1000

// staleHeads finds heads that have been due for q.Stale, have no living owner,
// and belong to subscriptions that no other living member works on.
func (m *member) staleHeads(ctx context.Context, db querier, q storage.Query) ([]candidate, error) {
	var found []candidate
	var busy map[place]bool // by rows without a key
	for i, lane := range q.Lanes {
		subscribers, err := m.s.d.keySubscribers(ctx, db, m.version, lane.Group)
		if err != nil {
			return nil, err
		}
		for _, sub := range subscribers {
			heads, err := m.heads(ctx, db, storage.HeadQuery{Group: lane.Group, Subscriber: sub, Limit: staleKeys})
			if err != nil {
				return nil, err
			}
			var stale []candidate
			for _, h := range heads {
				if !h.Living && h.DueIn <= -q.Stale && len(stale) < lane.Limit {
					stale = append(stale, candidate{pair: pair{i, h.Owner, sub}, seq: h.seq, due: h.due, bytes: int64(h.Bytes)})
				}
			}
			if len(stale) == 0 {
				continue
			}
			served, err := m.keysServed(ctx, db, lane.Group, sub)
			if err == nil && busy == nil {
				busy, err = m.served(ctx, db, q)
			}
			if err != nil {
				return nil, err
			}
			if !served && !busy[place{lane.Group, sub}] {
				found = append(found, stale...)
			}
		}
	}
	return found, nil
}

// keysServed reports whether another living member owns rows with a key of a
// subscription.
func (m *member) keysServed(ctx context.Context, db querier, group, subscriber string) (bool, error) {
	numbers, err := readAll[int64](ctx, db, m.s.d.others(m.box, m.version, m.number))
	if err != nil || len(numbers) == 0 {
		return false, err
	}
	some, err := readAll[int64](ctx, db, m.s.d.keysOwned(m.version, group, subscriber, numbers))
	return len(some) > 0, err
}
