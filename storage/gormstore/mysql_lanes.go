package gormstore

import (
	"context"
	"database/sql"
	"strings"

	"github.com/capbus/gocap/storage"
)

// keyedLanes finds where a version may have unfinished rows with a key, at most
// mostLanes. Rows that match no subscription have an empty open_key whether they
// have a key or not, so their lane is among these with any of them. It asks each
// lane there is, as keySubscribers does.
func (d *mysql) keyedLanes(ctx context.Context, db querier, b storage.Box, version string) ([]keyedLane, error) {
	var found []keyedLane
	at := keyedLane{version: version}
	for len(found) < mostLanes {
		if b == storage.Inbox {
			next, err := d.laneBehind(ctx, db, &at)
			if err != nil || !next {
				return found, err
			}
		}
		where, args := d.inLanes(b, []keyedLane{at})
		some, err := readAll[int64](ctx, db, query{"SELECT 1 FROM " + d.table(b) + mysqlByKey + " WHERE " + where + " LIMIT 1", args})
		if err != nil {
			return nil, err
		}
		if len(some) > 0 {
			found = append(found, at)
		}
		if b == storage.Outbox {
			break
		}
	}
	return found, nil
}

// laneBehind goes on to the next lane that has rows, finished or not.
func (d *mysql) laneBehind(ctx context.Context, db querier, at *keyedLane) (found bool, err error) {
	behind, args := mysqlBehind([]string{"group_name", "subscriber"}, byteArgs([]string{at.group, at.subscriber}))
	err = textOf("SELECT group_name, subscriber FROM "+d.received+mysqlByKey+" WHERE version = ? AND "+behind+
		" ORDER BY group_name, subscriber LIMIT 1", append([]any{[]byte(at.version)}, args...)...).
		each(ctx, db, func(rows *sql.Rows) error {
			found = true
			return rows.Scan(&at.group, &at.subscriber)
		})
	return found, err
}

// inLanes is the condition for the rows that the index on keys is for.
func (d *mysql) inLanes(b storage.Box, lanes []keyedLane) (string, []any) {
	if len(lanes) == 0 {
		return "version IN (NULL)", nil
	}
	var list []string
	var args []any
	for _, l := range lanes {
		where, largs := d.keyLane(b, l.version, l.group, l.subscriber)
		list, args = append(list, "("+where+" AND open_key >= '')"), append(args, largs...)
	}
	return "(" + strings.Join(list, " OR ") + ")", args
}

// waitingKeys takes some statements for each lane, see heads. Of a lane of rows
// that match no subscription it is the first row.
func (d *mysql) waitingKeys(ctx context.Context, db querier, b storage.Box, version string, most int) ([]firstRow, error) {
	lanes, err := d.keyedLanes(ctx, db, b, version)
	if err != nil {
		return nil, err
	}
	var firsts []firstRow
	for _, l := range lanes {
		where, args := d.inLanes(b, []keyedLane{l})
		places := []int64(nil)
		unmatched := 0
		if b == storage.Inbox && l.subscriber == "" {
			if places, err = readAll[int64](ctx, db, query{"SELECT seq FROM " + d.table(b) + mysqlByKey + " WHERE " + where +
				" ORDER BY open_key, seq LIMIT 1", args}); err == nil {
				unmatched, err = d.countUnmatched(ctx, db, version, l.group, most)
			}
		} else {
			var heads []keyPlace
			heads, err = d.placesBehind(ctx, db, b, version, storage.HeadQuery{Group: l.group, Subscriber: l.subscriber, Limit: keysInspected})
			for _, h := range heads {
				places = append(places, h.seq)
			}
		}
		if err != nil {
			return nil, err
		}
		if len(places) == 0 {
			continue
		}
		found, err := query{"SELECT ?, due_at - " + mysqlNow + ", " + mysqlNow + " - added_at, status, ? FROM " + d.table(b) + mysqlBySeq +
			" WHERE seq IN (" + marks(len(places)) + ") AND expires_at IS NULL", append([]any{[]byte(l.group), unmatched}, anys(places)...)}.
			firstRows(ctx, db)
		if err != nil {
			return nil, err
		}
		firsts = append(firsts, found...)
	}
	return firsts, nil
}
