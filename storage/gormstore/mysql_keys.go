package gormstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"strings"

	"github.com/capbus/gocap/storage"
)

// mysqlStep is how many entries of the index on keys one statement reads.
const mysqlStep = 256

// keyLane is the condition for the unfinished rows with a key of a lane; the
// empty open_key is that of rows which matched no subscription.
func (d *mysql) keyLane(b storage.Box, version, group, subscriber string) (string, []any) {
	if b == storage.Inbox {
		return "version = ? AND group_name = ? AND subscriber = ?", []any{[]byte(version), []byte(group), []byte(subscriber)}
	}
	return "version = ?", []any{[]byte(version)}
}

// keyPlace is the first row of a key, as it was found.
type keyPlace struct {
	key []byte
	seq int64
}

// heads: MySQL cannot hop in one statement (a range that begins at a value of
// the step before is no range to it). So one reads a stretch of the index and
// goes on behind its last key: few statements where keys have few rows, one a
// key where they have many. Another statement loads what was found. A row that
// has become final in between must not look like the end: a short page is taken
// for the last one, and a key without a head for one that has no rows.
func (d *mysql) heads(ctx context.Context, db querier, b storage.Box, version string, q storage.HeadQuery) ([]head, error) {
	var all []head
	for {
		places, more, err := d.places(ctx, db, b, version, q)
		if err != nil {
			return nil, err
		}
		missing, err := d.load(ctx, db, b, places, &all)
		switch {
		case err != nil:
			return nil, err
		case len(missing) == 0:
			return all, nil
		case len(q.Keys) > 0:
			q.Keys = missing
		case !more:
			return all, nil
		default:
			q.After, q.Limit = string(places[len(places)-1].key), len(missing)
		}
	}
}

// places finds the first rows of the keys that are asked for; more: there may be
// further keys behind them.
func (d *mysql) places(
	ctx context.Context, db querier, b storage.Box, version string, q storage.HeadQuery,
) (list []keyPlace, more bool, err error) {
	if len(q.Keys) > 0 {
		list, err = d.placesOf(ctx, db, b, version, q)
		return list, false, err
	}
	list, err = d.placesBehind(ctx, db, b, version, q)
	return list, len(list) >= q.Limit, err
}

// load reads the rows at places, and returns the keys of those that are final by
// now, or gone.
func (d *mysql) load(ctx context.Context, db querier, b storage.Box, places []keyPlace, all *[]head) ([]string, error) {
	there := make(map[int64]bool, len(places))
	err := batches(places, rowsPer, func(part []keyPlace) error {
		args := make([]any, len(part))
		for i, p := range part {
			args[i] = p.seq
		}
		found, err := readHeads(ctx, db, query{"SELECT seq, ordering_key, id, owner, EXISTS (SELECT 1 FROM " + d.instances +
			" WHERE number = r.owner AND ended_at IS NULL), due_at, due_at - " + mysqlNow + ", size FROM " + d.table(b) + " AS r" + mysqlBySeq +
			" WHERE seq IN (" + marks(len(part)) + ") AND open_key IS NOT NULL ORDER BY open_key", args})
		for _, h := range found {
			there[h.seq] = true
		}
		*all = append(*all, found...)
		return err
	})
	var missing []string
	for _, p := range places {
		if !there[p.seq] {
			missing = append(missing, string(p.key))
		}
	}
	return missing, err
}

// placesOf finds the first rows of keys.
func (d *mysql) placesOf(ctx context.Context, db querier, b storage.Box, version string, q storage.HeadQuery) ([]keyPlace, error) {
	where, args := d.keyLane(b, version, q.Group, q.Subscriber)
	keys := make([]any, len(q.Keys))
	for i, key := range q.Keys {
		keys[i] = hex.EncodeToString([]byte(key)) // as a value of a SELECT it would be a text of some character set
	}
	list := "SELECT UNHEX(?) AS v" + strings.Repeat(" UNION ALL SELECT UNHEX(?)", len(keys)-1)
	var places []keyPlace
	err := query{"SELECT v, s FROM (SELECT k.v, (SELECT seq FROM " + d.table(b) + mysqlByKey + " WHERE " + where +
		" AND open_key = k.v ORDER BY seq LIMIT 1) AS s FROM (" + list + ") AS k) AS h WHERE s IS NOT NULL", append(args, keys...)}.
		each(ctx, db, func(rows *sql.Rows) error {
			var p keyPlace
			err := rows.Scan(&p.key, &p.seq)
			places = append(places, p)
			return err
		})
	return places, err
}

// placesBehind finds the first rows of the keys behind one.
func (d *mysql) placesBehind(ctx context.Context, db querier, b storage.Box, version string, q storage.HeadQuery) ([]keyPlace, error) {
	where, args := d.keyLane(b, version, q.Group, q.Subscriber)
	last := []byte(q.After)
	var places []keyPlace
	for {
		n := 0
		step := query{"SELECT open_key, seq FROM " + d.table(b) + mysqlByKey + " WHERE " + where +
			" AND open_key > ? ORDER BY open_key, seq LIMIT ?", append(args[:len(args):len(args)], bytesOf(last), mysqlStep)}
		err := step.each(ctx, db, func(rows *sql.Rows) error {
			var p keyPlace
			if err := rows.Scan(&p.key, &p.seq); err != nil {
				return err
			}
			if n++; string(p.key) != string(last) && len(places) < q.Limit {
				places, last = append(places, p), p.key
			}
			return nil
		})
		if err != nil || n < mysqlStep || len(places) >= q.Limit {
			return places, err
		}
	}
}

// keySubscribers asks for each subscriber there is whether it has such rows: the
// index has all rows in it, and a search for one that has would read what is kept
// of the others.
func (d *mysql) keySubscribers(ctx context.Context, db querier, version, group string) ([]string, error) {
	var found []string
	last := []byte{} // rows that matched none have the empty one
	for {
		next, err := readAll[[]byte](ctx, db, textOf("SELECT subscriber FROM "+d.received+mysqlByKey+
			" WHERE version = ? AND group_name = ? AND subscriber > ? ORDER BY subscriber LIMIT 1",
			[]byte(version), []byte(group), last))
		if err != nil || len(next) == 0 {
			return found, err
		}
		last = next[0]
		where, args := d.keyLane(storage.Inbox, version, group, string(last))
		some, err := readAll[int64](ctx, db, query{"SELECT 1 FROM " + d.received + mysqlByKey + " WHERE " + where + " AND open_key > '' LIMIT 1", args})
		if err != nil {
			return found, err
		}
		if len(some) > 0 {
			found = append(found, string(last))
		}
	}
}

func (d *mysql) keysOwned(version, group, subscriber string, numbers []int64) query {
	where, args := d.keyLane(storage.Inbox, version, group, subscriber)
	return query{"SELECT owner FROM " + d.received + mysqlByKey + " WHERE " + where +
		" AND open_key > '' AND owner IN (" + marks(len(numbers)) + ") LIMIT 1", append(args, anys(numbers)...)}
}
