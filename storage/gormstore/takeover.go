package gormstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/capbus/gocap/storage"
)

// pair is a lane in which an owner who is not living has due rows; owner 0 is
// nobody.
type pair struct {
	lane       int
	owner      int64
	subscriber string
}

// candidate is a row that may be taken over.
type candidate struct {
	pair

	seq, due, bytes int64
}

// noLane stands for a lane that only fills up a text.
const noLane = -1

// everySubscriber tells that a lane means all of its group.
func everySubscriber(b storage.Box, q storage.Query) bool { return b == storage.Inbox && q.Stale > 0 }

// TakeOver implements storage.Member. It is storage.ErrLost when the member has
// ended, or its own lease has run out. An idle look reads only; the taking is
// one transaction that has the write lock from its beginning, looks again, and
// reads the living numbers after the candidates.
func (m *member) TakeOver(ctx context.Context, q storage.Query) ([]*storage.Record, error) {
	if len(q.IDs) == 0 {
		if err := checkLanes(m.box, q.Lanes); err != nil {
			return nil, m.failed("take over", err)
		}
	}
	if q.Locked = q.Locked && len(q.IDs) == 0; q.Locked {
		var err error
		if q.Lanes, err = m.hold(ctx, q.Lanes); err != nil || len(q.Lanes) == 0 {
			return nil, m.failedIf("take over", err)
		}
	}
	var idle bool
	err := m.s.untilFree(ctx, func() (err error) {
		idle, err = m.nothingToTake(ctx, q)
		return err
	})
	if err != nil || idle {
		return nil, m.failedIf("take over", err)
	}
	var taken []*storage.Record
	err = m.s.inTx(ctx, func(ctx context.Context, tx conn) (err error) {
		taken, err = m.takeOver(ctx, tx, q)
		return err
	})
	if err != nil {
		return nil, m.failed("take over", err)
	}
	return taken, nil
}

func (m *member) failedIf(what string, err error) error {
	if err == nil {
		return nil
	}
	return m.failed(what, err)
}

// nothingToTake looks without a write lock.
func (m *member) nothingToTake(ctx context.Context, q storage.Query) (bool, error) {
	dead, err := m.s.runOut(ctx, m.s.looks, m.number)
	if err != nil || len(dead) > 0 {
		return false, err
	}
	found, err := m.candidates(ctx, m.s.looks, q, true)
	return len(found) == 0, err
}

func (m *member) takeOver(ctx context.Context, tx conn, q storage.Query) ([]*storage.Record, error) {
	if _, err := m.s.d.lock().changed(ctx, tx); err != nil {
		return nil, err
	}
	if q.Locked {
		names := make([]string, len(q.Lanes))
		for i, l := range q.Lanes {
			names[i] = m.lockName(l)
		}
		left, err := m.locks(ctx, tx, names)
		if q.Lanes = m.held(q.Lanes, left); err != nil || len(q.Lanes) == 0 {
			return nil, err
		}
	}
	if err := m.declareDead(ctx, tx); err != nil {
		return nil, err
	}
	found, err := m.candidates(ctx, tx, q, false)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	owners := ownersOf(found)
	endings, err := m.s.endings(ctx, tx, owners)
	if err != nil {
		return nil, err
	}
	r := reader{next: -1}
	for _, owner := range owners {
		e := endings[owner]
		if e.living {
			continue
		}
		if err := m.take(ctx, tx, &r, q, owner, e.died, found); err != nil {
			return nil, err
		}
	}
	byPlace(r.recs)
	return r.recs, nil
}

// declareDead ends the heartbeats that have run out.
func (m *member) declareDead(ctx context.Context, tx conn) error {
	out, err := m.s.runOut(ctx, tx, m.number)
	if err != nil {
		return err
	}
	for _, b := range out {
		if _, err := m.s.d.declareDead(b).changed(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// candidates finds rows without a living owner, as many as the query has room
// for; with some, it may stop at the first sign of one.
func (m *member) candidates(ctx context.Context, db querier, q storage.Query, some bool) ([]candidate, error) {
	var found []candidate
	if len(q.IDs) > 0 {
		err := batches(unique(q.IDs), rowsPer, func(part []storage.ID) error {
			return readCandidates(ctx, db, &found, m.s.d.candidatesByID(m.box, m.version, part))
		})
		return found, err
	}
	if len(q.Lanes) == 0 {
		return nil, nil
	}
	if q.Stale == 0 {
		return m.alongTrails(ctx, db, q, some)
	}
	pairs, err := m.orphanage(ctx, db, q)
	if err != nil {
		return nil, err
	}
	if everySubscriber(m.box, q) {
		if pairs, err = m.withSubscribers(ctx, db, q, pairs); err != nil {
			return nil, err
		}
		if found, err = m.staleHeads(ctx, db, q); err != nil {
			return nil, err
		}
	}
	err = m.walk(ctx, db, &found, q, pairs)
	return withinLimits(found, q), err
}

// walk reads the due rows of each pair, as many as its lane has room for.
func (m *member) walk(ctx context.Context, db querier, found *[]candidate, q storage.Query, pairs []pair) error {
	return batches(pairs, lanesPer, func(part []pair) error {
		return readCandidates(ctx, db, found, m.s.d.candidates(m.box, m.version, q, part))
	})
}

// withinLimits keeps the earliest of each lane, of all owners together, and not
// much more than MaxBytes of all lanes together.
func withinLimits(found []candidate, q storage.Query) []candidate {
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq))
	})
	room := make([]int, len(q.Lanes))
	for i, l := range q.Lanes {
		room[i] = l.Limit
	}
	var bytes int64
	kept, had := found[:0], make(map[int64]bool, len(found))
	for _, c := range found {
		if q.MaxBytes > 0 && bytes > int64(q.MaxBytes) {
			break
		}
		if room[c.lane] > 0 && !had[c.seq] {
			room[c.lane]--
			had[c.seq] = true
			bytes += c.bytes
			kept = append(kept, c)
		}
	}
	return kept
}

// take makes the candidates of one owner this member's.
func (m *member) take(
	ctx context.Context, tx conn, r *reader, q storage.Query, owner int64, died bool, found []candidate,
) error {
	var keys []int64
	for _, c := range found {
		if c.owner == owner {
			keys = append(keys, c.seq)
		}
	}
	slices.Sort(keys)
	return batches(keys, rowsPer, func(part []int64) error {
		return m.s.d.take(ctx, tx, r, taking{
			box: m.box, number: m.number, owner: owner, died: died, keys: part, mustBeDue: len(q.IDs) == 0,
		})
	})
}

func ownersOf(found []candidate) []int64 {
	var owners []int64
	for _, c := range found {
		if !slices.Contains(owners, c.owner) {
			owners = append(owners, c.owner)
		}
	}
	return owners
}

// orphanage finds the lanes, and owners in them, with something to take.
func (m *member) orphanage(ctx context.Context, db querier, q storage.Query) ([]pair, error) {
	var pairs []pair
	first := 0
	err := batches(q.Lanes, lanesPer, func(part []storage.Lane) error {
		lanes := storage.Query{Lanes: part, Stale: q.Stale}
		err := m.s.d.orphanage(ctx, db, m.box, m.version, lanes, func(lane int, owner int64) {
			if lane != noLane {
				pairs = append(pairs, pair{lane: first + lane, owner: owner, subscriber: part[lane].Subscriber})
			}
		})
		first += len(part)
		return err
	})
	return pairs, err
}

// withSubscribers makes of each pair one for every subscriber of the group.
func (m *member) withSubscribers(ctx context.Context, db querier, q storage.Query, pairs []pair) ([]pair, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	var out []pair
	served, err := m.served(ctx, db, q)
	if err != nil {
		return nil, err
	}
	for _, p := range pairs {
		names, err := m.s.d.subscribers(ctx, db, m.version, q.Lanes[p.lane].Group, p.owner)
		if err != nil {
			return nil, err
		}
		for _, p.subscriber = range names {
			busy := served[place{q.Lanes[p.lane].Group, p.subscriber}]
			if !busy && p.subscriber != "" {
				if busy, err = m.keysServed(ctx, db, q.Lanes[p.lane].Group, p.subscriber); err != nil {
					return nil, err
				}
			}
			if !busy {
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// place is a subscription of a group.
type place struct{ group, subscriber string }

// served finds the subscriptions that another living member works on: it owns
// unfinished rows of them, without a key.
func (m *member) served(ctx context.Context, db querier, q storage.Query) (map[place]bool, error) {
	numbers, err := readAll[int64](ctx, db, m.s.d.others(m.box, m.version, m.number))
	if err != nil {
		return nil, err
	}
	found := map[place]bool{}
	for _, number := range numbers {
		for _, lane := range q.Lanes {
			names, err := m.s.d.subscribers(ctx, db, m.version, lane.Group, number)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				found[place{lane.Group, name}] = name != ""
			}
		}
	}
	return found, nil
}

// readAll reads an answer of one column.
func readAll[T any](ctx context.Context, db querier, q query) ([]T, error) {
	var list []T
	err := q.each(ctx, db, func(rows *sql.Rows) error {
		var v T
		err := rows.Scan(&v)
		list = append(list, v)
		return err
	})
	return list, err
}

func readCandidates(ctx context.Context, db querier, into *[]candidate, q query) error {
	return q.each(ctx, db, func(rows *sql.Rows) error {
		var c candidate
		err := rows.Scan(&c.lane, &c.seq, &c.owner, &c.due, &c.bytes)
		*into = append(*into, c)
		return err
	})
}

// pairs calls found with each answer of an index into lanes and an owner.
func (q query) pairs(ctx context.Context, db querier, found func(lane int, owner int64)) error {
	return q.each(ctx, db, func(rows *sql.Rows) error {
		var lane int
		var owner sql.NullInt64
		err := rows.Scan(&lane, &owner)
		if err == nil {
			found(lane, owner.Int64)
		}
		return err
	})
}
