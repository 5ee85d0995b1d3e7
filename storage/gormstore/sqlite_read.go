package gormstore

import (
	"strconv"
	"strings"
	"time"

	"github.com/capbus/gocap/storage"
)

// rowColumns lists what scanRow reads.
func rowColumns(b storage.Box) string {
	const common = `seq, id, version, name, owner, headers, body, status, retries, takeovers, last_error, ` +
		`due_at, ` + sqliteNow + ` - added_at, expires_at IS NOT NULL`
	if b == storage.Inbox {
		return common + `, group_name, subscriber, message_id`
	}
	return common + `, '', '', ''`
}

// The first column of a look says what a row of its answer is.
const (
	kindRow  = 0
	kindNext = 1 // the wait until the next row is due, in the place of the age
)

// due walks the lanes along the index on due times: the rows that are due, and
// how long it is until the next. The wait comes first, so that a row that falls
// due in between is in both, never in neither.
func (t *sqliteText) due(b storage.Box, version string, owner int64, lanes []storage.Lane) (string, []any) {
	var sb strings.Builder
	var args []any
	for i, l := range lanes {
		if i > 0 {
			sb.WriteString(` UNION ALL `)
		}
		where, wargs := laneOf(b, version, l)
		sb.WriteString(`SELECT 1, 0, x'', '', '', 0, x'', x'', 0, 0, 0, '', d, d - ` + sqliteNow +
			`, 0, '', '', '' FROM (SELECT min(due_at) AS d FROM ` + t.table(b) + ` WHERE ` + where +
			` AND owner = ? AND due_at > ` + sqliteNow + `) WHERE d IS NOT NULL`)
		args = append(append(args, wargs...), owner)
	}
	for _, l := range lanes {
		where, wargs := laneOf(b, version, l)
		sb.WriteString(` UNION ALL SELECT 0, ` + rowColumns(b) + ` FROM (`)
		args = t.walk(&sb, args, b, walk{
			columns: `*`, where: where + ` AND owner = ?`, args: append(wargs, owner), lane: l,
		})
		sb.WriteString(`)`)
	}
	return sb.String(), args
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

// walk writes the SELECT. Behind a position it has two ranges, which SQLite
// merges without a sort: the rest of the same moment, and what is later. (A
// comparison of (due_at, seq) as one value would start at the moment's first
// row each time, and a requeue gives thousands one moment.)
func (t *sqliteText) walk(sb *strings.Builder, args []any, b storage.Box, w walk) []any {
	from := `SELECT ` + w.columns + ` FROM ` + t.table(b) + ` WHERE ` + w.where + ` AND due_at <= ` + sqliteNow
	if w.stale > 0 {
		from += ` - ?`
		w.args = append(w.args[:len(w.args):len(w.args)], w.stale.Microseconds())
	}
	sb.WriteString(from)
	if after := w.lane.After; after != (storage.Position{}) {
		sb.WriteString(` AND due_at = ? AND seq > ? UNION ALL ` + from + ` AND due_at > ?`)
		at := after.DueAt.UnixMicro()
		args = append(append(args, w.args...), at, after.Seq)
		args = append(append(args, w.args...), at)
	} else {
		args = append(args, w.args...)
	}
	sb.WriteString(` ORDER BY due_at, seq LIMIT ?`)
	return append(args, max(w.lane.Limit, 1))
}

// byID reads rows of an owner that are in work.
func (t *sqliteText) byID(b storage.Box, n int) string {
	return `SELECT 0, ` + rowColumns(b) + ` FROM ` + t.table(b) +
		` WHERE id IN (` + marks(n) + `) AND owner = ? AND due_at IS NOT NULL`
}

// unmatched reads rows of a group that matched no subscription, by seq.
func (t *sqliteText) unmatched() string {
	return `SELECT 0, ` + rowColumns(storage.Inbox) + ` FROM ` + t.received +
		` WHERE version = ? AND group_name = ? AND subscriber = '' AND owner IS NULL AND expires_at IS NULL` +
		` AND seq > ? ORDER BY seq LIMIT ?`
}

// orphanage finds where there are due rows without a living owner: pairs of an
// index into lanes and an owner (NULL: anyone). It hops over the owners, one
// step in the index for each, however many rows they have.
func (t *sqliteText) orphanage(b storage.Box, version string, q storage.Query) (string, []any) {
	table := t.table(b)
	var sb strings.Builder
	sb.WriteString(`WITH RECURSIVE hop(o) AS (SELECT min(owner) FROM ` + table +
		` WHERE version = ?1 AND owner > 0 AND due_at IS NOT NULL UNION ALL SELECT (SELECT min(owner) FROM ` +
		table + ` WHERE version = ?1 AND owner > hop.o AND due_at IS NOT NULL) FROM hop WHERE hop.o IS NOT NULL), ` +
		`orphan(o) AS (SELECT o FROM hop WHERE o IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ` + t.instances +
		` WHERE number = hop.o AND ended_at IS NULL) UNION ALL SELECT NULL), lane(i, g, s) AS (VALUES `)
	sb.WriteString(tuples(len(q.Lanes), `(?,?,?)`))
	sb.WriteString(`) SELECT lane.i, orphan.o FROM orphan CROSS JOIN lane WHERE EXISTS (SELECT 1 FROM ` + table +
		` AS r WHERE r.version = ?1 AND r.owner IS orphan.o AND r.due_at <= ` + sqliteNow + ` - ` +
		strconv.FormatInt(max(q.Stale, 0).Microseconds(), 10))
	if b == storage.Inbox {
		sb.WriteString(` AND r.group_name = lane.g`)
		if q.Stale <= 0 {
			sb.WriteString(` AND r.subscriber = lane.s`)
		}
	}
	sb.WriteString(`)`)
	args := []any{version}
	for i, l := range q.Lanes {
		args = append(args, i, l.Group, l.Subscriber)
	}
	return sb.String(), args
}

// candidates walks one owner's due rows of a lane: key, owner, place and size.
func (t *sqliteText) candidates(b storage.Box, version string, q storage.Query, ps []pair) (string, []any) {
	var sb strings.Builder
	var args []any
	for i, p := range ps {
		if i > 0 {
			sb.WriteString(` UNION ALL `)
		}
		l := q.Lanes[p.lane]
		where, wargs := laneOf(b, version, l)
		if b == storage.Inbox && q.Stale > 0 {
			where, wargs = `version = ? AND group_name = ?`, []any{version, l.Group}
		}
		if p.owner == 0 {
			where += ` AND owner IS NULL`
		} else {
			where, wargs = where+` AND owner = ?`, append(wargs, p.owner)
		}
		sb.WriteString(`SELECT ?, seq, coalesce(owner, 0), due_at, size FROM (`)
		args = t.walk(&sb, append(args, p.lane), b, walk{
			columns: `seq, owner, due_at, length(headers) + length(body) AS size`, where: where, args: wargs, lane: l, stale: q.Stale,
		})
		sb.WriteString(`)`)
	}
	return sb.String(), args
}

// candidatesByID finds which of the rows have no living owner.
func (t *sqliteText) candidatesByID(b storage.Box, n int) string {
	return `SELECT 0, seq, coalesce(owner, 0), due_at, length(headers) + length(body) FROM ` + t.table(b) +
		` AS r WHERE id IN (` + marks(n) + `) AND version = ? AND due_at IS NOT NULL AND (owner IS NULL` +
		` OR NOT EXISTS (SELECT 1 FROM ` + t.instances + ` WHERE number = r.owner AND ended_at IS NULL))`
}
