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
	var idle bool
	err := m.s.untilFree(ctx, func() (err error) {
		idle, err = m.nothingToTake(ctx, q)
		return err
	})
	if err != nil || idle {
		return nil, m.failedIf("take over", err)
	}
	var taken []*storage.Record
	err = m.s.inTx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
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
	dead, err := m.s.runOut(ctx, &m.s.looks, m.number)
	if err != nil || len(dead) > 0 {
		return false, err
	}
	found, err := m.candidates(ctx, &m.s.looks, q, true)
	return len(found) == 0, err
}

func (m *member) takeOver(ctx context.Context, tx *sql.Tx, q storage.Query) ([]*storage.Record, error) {
	if _, err := tx.ExecContext(ctx, m.s.text.lock()); err != nil {
		return nil, err
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
func (m *member) declareDead(ctx context.Context, tx *sql.Tx) error {
	out, err := m.s.runOut(ctx, tx, m.number)
	if err != nil {
		return err
	}
	for _, b := range out {
		if _, err := tx.ExecContext(ctx, m.s.text.declareDead(), b.number, b.beat); err != nil {
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
		err := batches(unique(q.IDs), sqliteRows, func(part []storage.ID) error {
			query := m.s.text.candidatesByID(m.box, padded(len(part), sqliteRows))
			return readCandidates(ctx, db, &found, query, append(paddedArgs(part), m.version)...)
		})
		return found, err
	}
	if len(q.Lanes) == 0 {
		return nil, nil
	}
	pairs, err := m.orphanage(ctx, db, q)
	if err != nil {
		return nil, err
	}
	if everySubscriber(m.box, q) {
		if pairs, err = m.withSubscribers(ctx, db, q, pairs); err != nil {
			return nil, err
		}
	} else if some {
		for _, p := range pairs {
			found = append(found, candidate{pair: p})
		}
		return found, nil
	}
	err = batches(pairs, sqliteTerms, func(part []pair) error {
		query, args := m.s.text.candidates(m.box, m.version, q, part)
		return readCandidates(ctx, db, &found, query, args...)
	})
	return withinLimits(found, q), err
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
	ctx context.Context, tx *sql.Tx, r *reader, q storage.Query, owner int64, died bool, found []candidate,
) error {
	var keys []any
	for _, c := range found {
		if c.owner == owner {
			keys = append(keys, c.seq)
		}
	}
	return batches(keys, sqliteRows, func(part []any) error {
		args := append([]any{m.number, died}, part...)
		if owner != 0 {
			args = append(args, owner)
		}
		rows, err := tx.QueryContext(ctx, m.s.text.take(m.box, len(part), owner == 0, len(q.IDs) == 0), args...)
		if err != nil {
			return err
		}
		return r.read(rows)
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
	err := batches(q.Lanes, sqliteTerms, func(part []storage.Lane) error {
		query, args := m.s.text.orphanage(m.box, m.version, storage.Query{Lanes: part, Stale: q.Stale})
		rows, err := db.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var p pair
			var owner sql.NullInt64
			if err := rows.Scan(&p.lane, &owner); err != nil {
				return err
			}
			if p.owner = owner.Int64; p.lane != noLane {
				p.subscriber = part[p.lane].Subscriber
				p.lane += first
				pairs = append(pairs, p)
			}
		}
		first += len(part)
		return rows.Err()
	})
	return pairs, err
}

// withSubscribers makes of each pair one for every subscriber of the group.
func (m *member) withSubscribers(ctx context.Context, db querier, q storage.Query, pairs []pair) ([]pair, error) {
	var out []pair
	served, err := m.served(ctx, db, q, pairs)
	if err != nil {
		return nil, err
	}
	for _, p := range pairs {
		args := []any{m.version, q.Lanes[p.lane].Group}
		if p.owner != 0 {
			args = append(args, p.owner)
		}
		names, err := readStrings(ctx, db, m.s.text.subscribers(p.owner == 0), args...)
		if err != nil {
			return nil, err
		}
		for _, p.subscriber = range names {
			if !served[place{q.Lanes[p.lane].Group, p.subscriber}] {
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// place is a subscription of a group.
type place struct{ group, subscriber string }

// served finds the subscriptions that another living member works on: it owns
// unfinished rows of them.
func (m *member) served(ctx context.Context, db querier, q storage.Query, pairs []pair) (map[place]bool, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	numbers, err := readNumbers(ctx, db, m.s.text.others(), m.box.String(), m.version, m.number)
	if err != nil {
		return nil, err
	}
	found := map[place]bool{}
	for _, number := range numbers {
		for _, lane := range q.Lanes {
			names, err := readStrings(ctx, db, m.s.text.subscribers(false), m.version, lane.Group, number)
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

func readNumbers(ctx context.Context, db querier, query string, args ...any) ([]int64, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []int64
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, rows.Err()
}

func readStrings(ctx context.Context, db querier, query string, args ...any) ([]string, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

func readCandidates(ctx context.Context, db querier, into *[]candidate, query string, args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c candidate
		if err := rows.Scan(&c.lane, &c.seq, &c.owner, &c.due, &c.bytes); err != nil {
			return err
		}
		*into = append(*into, c)
	}
	return rows.Err()
}
