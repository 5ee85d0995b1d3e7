package gormstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/capbus/gocap/storage"
)

// opWords are the words of one statement of an operator, on one table, in which
// databases differ.
type opWords interface {
	// add makes a parameter of a value, of PostgreSQL's type bigint, text or bytea.
	add(v any, typ string) string
	// rows and heartbeats are names of tables.
	rows() string
	heartbeats() string
	// now is the moment at which the statement began.
	now() string
	// moment makes one of microseconds since 1970; micros is the inverse, and
	// until how many microseconds there are to a moment from when a row is looked
	// at: a change may have waited for another one.
	moment(micros string) string
	micros(moment string) string
	until(moment string) string
	// id is the column as bytes, and text a column of names as reader.scan wants it.
	id() string
	text(column string) string
	// size is how many bytes headers and body have.
	size() string
	// among, begins and behind are conditions; values in several columns are behind
	// others if they come later in an index.
	among(ids []storage.ID) string
	begins(column, prefix string) string
	behind(columns []string, values ...string) string
	// from is rows as they are read along an index; along is the condition that the
	// index is made for, in the given parts, and its order.
	from(ix opIndex) string
	along(ix opIndex, in parts) (where, order string)
	query(text string) query
	// change sets values in rows, or deletes them if none are set, and notes the
	// ids of those that it has changed. The condition names the given ids, too.
	change(ctx context.Context, tx conn, set string, ids []storage.ID, where string, done idSet) error
}

// opIndex is an index that is walked.
type opIndex uint8

const (
	bySeq opIndex = iota
	byDelayed
	byFailed
	byDue    // of rows that are looked for by due time
	byKey    // of unfinished rows with a key, which byDue has not
	byExpiry // of rows that have nothing more to do
	byID
	byMessage
)

// parts are those of the indexes that begin with a version: the zero value is
// all of each, in databases whose indexes have just the rows that they are for.
type parts struct {
	versions []string
	lanes    []keyedLane // of byKey
}

// keyedLane is where unfinished rows with a key are.
type keyedLane struct{ version, group, subscriber string }

// source says in which rows those of a listing are looked for.
type source uint8

const (
	inAll      source = iota // all, in order of seq
	inHeld                   // those of some states, in order of seq
	inDue                    // those that are in work or will be, if there are few
	inIDs                    // those of the filter
	inMessages               // those of a message id
)

// view is one look of a listing.
type view struct {
	f         storage.Filter
	src       source
	in        parts         // of inDue
	keys      []messageLane // of inMessages
	low, high int64         // between these, both excluded
	oldest    bool
	window    int // most rows looked at
	limit     int // most rows that are answered
}

// messageLane is where a message id is unique.
type messageLane struct{ version, group, subscriber, topic string }

// opSQL makes the statements of operators, for every dialect. Parameters are
// added in the order of the text.
type opSQL struct {
	opWords

	b storage.Box
}

// listing answers with the number of rows looked at, the last one, and the
// columns that operated reads of each that matches, NULL if none does.
func (o opSQL) listing(v view) query {
	dir, last := ` DESC`, `min(k)`
	if v.oldest {
		dir, last = ` ASC`, `max(k)`
	}
	var sb strings.Builder
	sb.WriteString(`WITH s AS (SELECT k, hit FROM (` + o.looked(v, dir) + `) AS x WHERE k > ` + o.add(v.low, "bigint") +
		` AND k < ` + o.add(v.high, "bigint") + ` ORDER BY k` + dir + ` LIMIT ` + o.add(v.window, "bigint") + `)`)
	sb.WriteString(` SELECT e.n, e.last, ` + o.columns() + ` FROM (SELECT count(*) AS n, ` + last + ` AS last FROM s) AS e` +
		` LEFT JOIN (SELECT k FROM s WHERE hit ORDER BY k` + dir + ` LIMIT ` + o.add(v.limit, "bigint") + `) AS h ON 1 = 1` +
		` LEFT JOIN ` + o.rows() + ` AS r ON r.seq = h.k ORDER BY h.k` + dir)
	return o.query(sb.String())
}

// looked is a SELECT of k and hit, of at least as many rows as v.window.
func (o opSQL) looked(v view, dir string) string {
	columns := func(ix opIndex) string { return `SELECT seq AS k, (` + o.matching(v.f) + `) AS hit FROM ` + o.from(ix) }
	walk := func(ix opIndex) string {
		head := columns(ix)
		where, _ := o.along(ix, parts{})
		return `SELECT * FROM (` + head + ` WHERE ` + where + ` AND seq > ` + o.add(v.low, "bigint") + ` AND seq < ` +
			o.add(v.high, "bigint") + ` ORDER BY seq` + dir + ` LIMIT ` + o.add(v.window, "bigint") + `) AS w`
	}
	switch v.src {
	case inHeld:
		var parts []string
		for _, ix := range heldBy(v.f.States) {
			parts = append(parts, walk(ix))
		}
		return strings.Join(parts, ` UNION ALL `)
	case inDue:
		return o.unfinished(byDue, v) + ` UNION ALL ` + o.unfinished(byKey, v)
	case inIDs:
		return columns(byID) + ` WHERE ` + o.among(v.f.IDs)
	case inMessages:
		return columns(byMessage) + ` WHERE ` + o.messages(v)
	}
	return walk(bySeq)
}

// unfinished is a part of inDue. MySQL's index on keys has more than rows with a
// key, which are left out when all is read: else there were no bound.
func (o opSQL) unfinished(ix opIndex, v view) string {
	head := `SELECT k, hit FROM (SELECT seq AS k, (` + o.matching(v.f) + `) AS hit, ordering_key IS NOT NULL AS keyed FROM ` + o.from(ix)
	where, order := o.along(ix, v.in)
	text := head + ` WHERE ` + where + ` ORDER BY ` + order + ` LIMIT ` + o.add(dueMost, "bigint") + `) AS ` + partNames[ix]
	if ix == byKey {
		text += ` WHERE keyed`
	}
	return text
}

// partNames are aliases.
var partNames = map[opIndex]string{byDue: `d`, byKey: `q`} //nolint:gochecknoglobals // a constant

func (o opSQL) messages(v view) string {
	var parts []string
	for _, k := range v.keys {
		parts = append(parts, `(version = `+o.add(k.version, "text")+` AND group_name = `+o.add(k.group, "text")+
			` AND subscriber = `+o.add(k.subscriber, "text")+` AND name = `+o.add(k.topic, "text")+
			` AND message_id = `+o.add(messageBytes(messageKey(v.f.MessageID)), "bytea")+`)`)
	}
	return strings.Join(parts, ` OR `)
}

// messageBytes are given as bytes where message ids are bytes.
type messageBytes string

// heldBy returns the indexes that have the rows of the states; states that have
// none of their own are not in it.
func heldBy(states []storage.State) []opIndex {
	var list []opIndex
	if slices.Contains(states, storage.StateDelayed) {
		list = append(list, byDelayed)
	}
	if slices.Contains(states, storage.StateRetrying) || slices.Contains(states, storage.StateFailed) {
		list = append(list, byFailed)
	}
	return list
}

// matching is the condition for rows that match the filter.
func (o opSQL) matching(f storage.Filter) string {
	conds := []string{`1 = 1`}
	is := func(column, value string) {
		if value != "" {
			conds = append(conds, column+` = `+o.add(value, "text"))
		}
	}
	is(`version`, f.Version)
	is(`name`, f.Topic)
	if f.TopicPrefix != "" {
		conds = append(conds, o.begins(`name`, f.TopicPrefix))
	}
	if o.b == storage.Inbox {
		is(`group_name`, f.Group)
		is(`subscriber`, f.Subscriber)
		if f.MessageID != "" {
			conds = append(conds, `message_id = `+o.add(messageBytes(messageKey(f.MessageID)), "bytea"))
		}
	}
	if len(f.States) > 0 {
		var states []string
		for _, s := range f.States {
			states = append(states, stateIs(s))
		}
		conds = append(conds, `(`+strings.Join(states, ` OR `)+`)`)
	}
	added := func(op string, t time.Time) {
		if !t.IsZero() {
			conds = append(conds, `added_at `+op+` `+o.moment(o.add(t.UnixMicro(), "bigint")))
		}
	}
	added(`>=`, f.AddedFrom)
	added(`<`, f.AddedBefore)
	return strings.Join(conds, ` AND `)
}

func stateIs(s storage.State) string {
	switch s {
	case storage.StateRetrying:
		return `status = 3 AND expires_at IS NULL`
	case storage.StateFailed:
		return `status = 3 AND expires_at IS NOT NULL`
	case storage.StateDelayed:
		return `status = 1`
	case storage.StateSucceeded:
		return `status = 2`
	}
	return `status = 0`
}

// columns lists what operated reads.
func (o opSQL) columns() string {
	names := `'', '', ''`
	if o.b == storage.Inbox {
		names = o.text(`r.group_name`) + `, ` + o.text(`r.subscriber`) + `, ` + o.text(`r.message_id`)
	}
	return `r.seq, ` + o.id() + `, ` + o.text(`r.version`) + `, ` + o.text(`r.name`) + `, ` + names +
		`, r.ordering_key, r.owner, r.status, r.retries, r.takeovers, ` + o.text(`r.last_error`) + `, ` +
		o.micros(`r.due_at`) + `, ` + o.until(`r.due_at`) + `, ` + o.micros(`r.added_at`) + `, ` + o.until(`r.added_at`) +
		`, ` + o.micros(`r.expires_at`) + `, ` + o.size() +
		`, EXISTS (SELECT 1 FROM ` + o.heartbeats() + ` WHERE number = r.owner AND ended_at IS NULL AND ` +
		o.until(`beat_at`) + ` + lease > 0)`
}

// contents answers with seq, headers and body.
func (o opSQL) contents(keys []int64) query {
	list := make([]string, len(keys))
	for i, k := range keys {
		list[i] = strconv.FormatInt(k, 10)
	}
	return o.query(`SELECT seq, headers, body FROM ` + o.from(bySeq) + ` WHERE seq IN (` + strings.Join(list, `,`) + `)`)
}

// dueCount answers with the number of unfinished rows, of each index at most one
// more than inDue takes.
func (o opSQL) dueCount(in parts) query {
	some := func(ix opIndex) string {
		where, order := o.along(ix, in)
		return `(SELECT count(*) FROM (SELECT seq FROM ` + o.from(ix) + ` WHERE ` + where + ` ORDER BY ` + order + ` LIMIT ` +
			o.add(dueMost+1, "bigint") + `) AS ` + partNames[ix] + `)`
	}
	return o.query(`SELECT ` + some(byDue) + ` + ` + some(byKey))
}

// nextLane answers with the place of the inbox's unique index behind one.
func (o opSQL) nextLane(l messageLane) query {
	key := []string{`version`, `group_name`, `subscriber`, `name`}
	return o.query(`SELECT ` + o.text(`version`) + `, ` + o.text(`group_name`) + `, ` + o.text(`subscriber`) + `, ` + o.text(`name`) +
		` FROM ` + o.from(byMessage) + ` WHERE ` + o.behind(key, l.version, l.group, l.subscriber, l.topic) +
		` ORDER BY ` + strings.Join(key, `, `) + ` LIMIT 1`)
}

// places answers with the least and the greatest seq. One SELECT for both would
// scan the table in SQLite.
func (o opSQL) places() query {
	return o.query(`SELECT coalesce((SELECT min(seq) FROM ` + o.rows() + `), 0), coalesce((SELECT max(seq) FROM ` + o.rows() + `), 0)`)
}

// addedAt answers with the first seq from the given one on, and when it was added.
func (o opSQL) addedAt(seq int64) query {
	return o.query(`SELECT seq, ` + o.micros(`added_at`) + ` FROM ` + o.from(bySeq) + ` WHERE seq >= ` + o.add(seq, "bigint") +
		` ORDER BY seq LIMIT 1`)
}

// count looks at so many rows along an index, and answers with version, group,
// topic, status, whether final, whether there is a key, and a number of rows.
func (o opSQL) count(ix opIndex, in parts, most int) query {
	group := `''`
	if o.b == storage.Inbox {
		group = `group_name`
	}
	where, order := o.along(ix, in)
	return o.query(`SELECT ` + o.text(`v`) + `, ` + o.text(`g`) + `, ` + o.text(`n`) + `, st, fin, keyed, count(*) FROM (SELECT version AS v, ` +
		group + ` AS g, name AS n, status AS st, expires_at IS NOT NULL AS fin, ordering_key IS NOT NULL AS keyed FROM ` + o.from(ix) + ` WHERE ` + where + ` ORDER BY ` + order +
		` LIMIT ` + o.add(most, "bigint") + `) AS c GROUP BY v, g, n, st, fin, keyed`)
}

// changing is what an action sets, and the condition by which it changes rows.
func (o opSQL) changing(a storage.Action, f storage.Filter) (set, where string) {
	if a == storage.Requeue {
		set = `status = 0, retries = 0, takeovers = 0, owner = NULL, expires_at = NULL, due_at = ` +
			o.now() + `, updated_at = ` + o.now()
	}
	where = o.among(f.IDs) + ` AND ` + o.matching(f) + ` AND `
	switch a {
	case storage.Requeue:
		where += `CASE WHEN expires_at IS NOT NULL THEN due_at IS NULL WHEN status = 1 THEN ` + o.until(`due_at`) + ` > 0 ELSE ` +
			o.until(`due_at`) + ` > ` + strconv.FormatInt(storage.RequeueMargin.Microseconds(), 10) + ` END`
	case storage.Cancel:
		where += `status = 1 AND ` + o.until(`due_at`) + ` > 0`
	default:
		where += `expires_at IS NOT NULL AND due_at IS NULL`
	}
	return set, where
}

// rowBehind is opWords.behind for databases that compare rows along an index.
func rowBehind(w opWords, columns []string, values []string) string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = w.add(v, "text")
	}
	return `(` + strings.Join(columns, `, `) + `) > (` + strings.Join(list, `, `) + `)`
}

// changeOf is the statement of opWords.change.
func changeOf(table, set, where string) string {
	if set == "" {
		return `DELETE FROM ` + table + ` WHERE ` + where
	}
	return `UPDATE ` + table + ` SET ` + set + ` WHERE ` + where
}
