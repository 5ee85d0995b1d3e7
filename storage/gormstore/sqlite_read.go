package gormstore

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/capbus/gocap/storage"
)

// rowColumns lists what reader.scan reads. Texts are read as bytes: the driver takes
// a text of an expression that looks like a date for one, and rewrites it.
func rowColumns(b storage.Box) string {
	const common = `seq, id, CAST(version AS BLOB), CAST(name AS BLOB), owner, headers, body, status, retries,` +
		` takeovers, CAST(last_error AS BLOB), due_at, ` + sqliteNow + ` - added_at, expires_at IS NOT NULL, ordering_key`
	if b == storage.Inbox {
		return common + `, CAST(group_name AS BLOB), CAST(subscriber AS BLOB), CAST(message_id AS BLOB)`
	}
	return common + `, x'', x'', x''`
}

// inLanes is the condition for rows that are looked for by due time; in these
// words it is that of the index. Unfinished rows with a key are not.
const inLanes = ` AND (ordering_key IS NULL OR expires_at IS NOT NULL)`

// inKeys is the condition for those, and of the index on keys.
const inKeys = `ordering_key IS NOT NULL AND expires_at IS NULL`

// limit is an expression, because SQLite plans a statement anew whenever a bare
// parameter in LIMIT gets a value.
const limit = ` LIMIT ?+0`

func (d *sqlite) due(b storage.Box, version string, owner int64, lanes []storage.Lane, _ int) query {
	var sb strings.Builder
	var args []any
	for n := padded(len(lanes), lanesPer); len(lanes) < n; {
		lanes = append(lanes[:len(lanes):len(lanes)], storage.Lane{Group: lanes[0].Group, Subscriber: lanes[0].Subscriber})
	}
	for i, l := range lanes {
		if i > 0 {
			sb.WriteString(` UNION ALL `)
		}
		where, wargs := laneOf(b, version, l)
		sb.WriteString(`SELECT 1, 0, x'', x'', x'', 0, x'', x'', 0, 0, 0, x'', d, d - ` + sqliteNow +
			`, 0, NULL, x'', x'', x'' FROM (SELECT min(due_at) AS d FROM ` + d.table(b) + ` WHERE ` + where +
			` AND owner = ? AND due_at > ` + sqliteNow + inLanes + `) WHERE d IS NOT NULL`)
		args = append(append(args, wargs...), owner)
	}
	for _, l := range lanes {
		where, wargs := laneOf(b, version, l)
		sb.WriteString(` UNION ALL SELECT 0, ` + rowColumns(b) + ` FROM (`)
		args = d.walk(&sb, args, b, walk{
			columns: `*`, where: where + ` AND owner = ?`, args: append(wargs, owner), lane: l,
		})
		sb.WriteString(`)`)
	}
	return query{sb.String(), args}
}

// laneOf is the condition for the rows of a lane, whoever owns them.
func laneOf(b storage.Box, version string, l storage.Lane) (string, []any) {
	if b == storage.Inbox {
		return `version = ? AND group_name = ? AND subscriber = ?`, []any{version, l.Group, l.Subscriber}
	}
	return `version = ?`, []any{version}
}

// walk is one walk along the index on due times, to at most lane.Limit rows.
type walk struct {
	columns, where string
	args           []any
	lane           storage.Lane
	stale          time.Duration
}

// walk writes the SELECT. It has two ranges, which SQLite merges without a sort:
// the rest of the moment of the position, and what is later. (A comparison of
// (due_at, seq) as one value would start at the moment's first row each time,
// and a requeue gives thousands one moment.) The text is the same from the
// start, so that there are few texts to prepare.
func (d *sqlite) walk(sb *strings.Builder, args []any, b storage.Box, w walk) []any {
	from := `SELECT ` + w.columns + ` FROM ` + d.table(b) + ` WHERE ` + w.where +
		` AND due_at <= ` + sqliteNow + ` - ?` + inLanes
	sb.WriteString(from + ` AND due_at = ? AND seq > ? UNION ALL ` + from + ` AND due_at > ? ORDER BY due_at, seq` + limit)
	at, seq := int64(math.MinInt64), int64(0)
	if after := w.lane.After; after != (storage.Position{}) {
		at, seq = after.DueAt.UnixMicro(), after.Seq
	}
	stale := max(w.stale, 0).Microseconds()
	args = append(append(args, w.args...), stale, at, seq)
	return append(append(args, w.args...), stale, at, w.lane.Limit)
}

func (d *sqlite) byID(b storage.Box, ids []storage.ID, owner int64) query {
	args := paddedArgs(ids)
	return query{`SELECT 0, ` + rowColumns(b) + ` FROM ` + d.table(b) +
		` WHERE id IN (` + marks(len(args)) + `) AND owner = ? AND due_at IS NOT NULL`, append(args, owner)}
}

func (d *sqlite) unmatched(version, group string, after int64, most int) query {
	return textOf(`SELECT 0, `+rowColumns(storage.Inbox)+` FROM `+d.received+
		` WHERE version = ? AND group_name = ? AND subscriber = '' AND owner IS NULL AND expires_at IS NULL`+
		` AND seq > ? ORDER BY seq`+limit, version, group, after, most)
}

func (d *sqlite) subscribers(ctx context.Context, db querier, version, group string, owner int64) ([]string, error) {
	args := []any{version, group}
	from := `SELECT min(subscriber) FROM ` + d.received + ` WHERE version = ?1 AND group_name = ?2 AND due_at IS NOT NULL` + inLanes
	if owner == 0 {
		from += ` AND owner IS NULL`
	} else {
		from += ` AND owner = ?3`
		args = append(args, owner)
	}
	return readAll[string](ctx, db, query{`WITH RECURSIVE hop(s) AS (` + from + ` UNION ALL SELECT (` + from +
		` AND subscriber > hop.s) FROM hop WHERE hop.s IS NOT NULL) SELECT CAST(s AS BLOB) FROM hop WHERE s IS NOT NULL`, args})
}

func (d *sqlite) orphanage(
	ctx context.Context, db querier, b storage.Box, version string, q storage.Query, found func(lane int, owner int64),
) error {
	table := d.table(b)
	var sb strings.Builder
	lanes, args := sqliteLanes(`lane`, q.Lanes)
	sb.WriteString(`WITH RECURSIVE p(version, stale) AS (VALUES (?, ?)), ` + lanes + `, ` + d.orphans(b) +
		` SELECT lane.i, orphan.o FROM orphan CROSS JOIN lane WHERE EXISTS (SELECT 1 FROM ` + table +
		` AS r WHERE r.version = ?1 AND r.owner IS orphan.o` + inLanes)
	switch {
	case everySubscriber(b, q):
		sb.WriteString(` AND r.group_name = lane.g AND r.due_at IS NOT NULL)`)
	case b == storage.Inbox:
		sb.WriteString(` AND r.group_name = lane.g AND r.subscriber = lane.s AND r.due_at <= ` + sqliteNow + ` - ?2)`)
	default:
		sb.WriteString(` AND r.due_at <= ` + sqliteNow + ` - ?2)`)
	}
	return query{sb.String(), append([]any{version, max(q.Stale, 0).Microseconds()}, args...)}.pairs(ctx, db, found)
}

// sqliteLanes is a list of lanes as a table of that name.
func sqliteLanes(name string, lanes []storage.Lane) (text string, args []any) {
	n := padded(len(lanes), lanesPer)
	for i, l := range lanes {
		args = append(args, i, l.Group, l.Subscriber)
	}
	for range n - len(lanes) {
		args = append(args, noLane, "", "")
	}
	return name + `(i, g, s) AS (VALUES ` + tuples(n, `(?,?,?)`) + `)`, args
}

// orphans is a table of the owners who have rows in the version ?1 and are not
// living; NULL, nobody, is always one. It hops over the owners.
func (d *sqlite) orphans(b storage.Box) string {
	table := d.table(b)
	return `hop(o) AS (SELECT min(owner) FROM ` + table +
		` WHERE version = ?1 AND owner > 0 AND due_at IS NOT NULL` + inLanes + ` UNION ALL SELECT (SELECT min(owner) FROM ` +
		table + ` WHERE version = ?1 AND owner > hop.o AND due_at IS NOT NULL` + inLanes + `) FROM hop WHERE hop.o IS NOT NULL), ` +
		`orphan(o) AS (SELECT o FROM hop WHERE o IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ` + d.instances +
		` WHERE number = hop.o AND ended_at IS NULL) UNION ALL SELECT NULL)`
}

func (d *sqlite) candidates(b storage.Box, version string, q storage.Query, ps []pair) query {
	var sb strings.Builder
	var args []any
	for i, p := range ps {
		if i > 0 {
			sb.WriteString(` UNION ALL `)
		}
		l := q.Lanes[p.lane]
		l.Subscriber = p.subscriber
		where, wargs := laneOf(b, version, l)
		if p.owner == 0 {
			where += ` AND owner IS NULL`
		} else {
			where, wargs = where+` AND owner = ?`, append(wargs, p.owner)
		}
		sb.WriteString(`SELECT ?, seq, coalesce(owner, 0), due_at, size FROM (`)
		args = d.walk(&sb, append(args, p.lane), b, walk{
			columns: `seq, owner, due_at, length(headers) + length(body) AS size`, where: where, args: wargs, lane: l, stale: q.Stale,
		})
		sb.WriteString(`)`)
	}
	return query{sb.String(), args}
}

func (d *sqlite) candidatesByID(b storage.Box, version string, ids []storage.ID) query {
	args := paddedArgs(ids)
	return query{`SELECT 0, seq, coalesce(owner, 0), due_at, length(headers) + length(body) FROM ` + d.table(b) +
		` AS r WHERE id IN (` + marks(len(args)) + `) AND version = ? AND due_at IS NOT NULL AND (owner IS NULL` +
		` OR NOT EXISTS (SELECT 1 FROM ` + d.instances + ` WHERE number = r.owner AND ended_at IS NULL))`, append(args, version)}
}
