package gormstore

import (
	"context"

	"github.com/capbus/gocap/storage"
)

// keyLane is the condition for the unfinished rows with a key of a lane, whose
// arguments are the first of the statement.
func (d *sqlite) keyLane(b storage.Box, version string, q storage.HeadQuery) (string, []any) {
	const where = `version = ?1 AND expires_at IS NULL`
	if b == storage.Inbox {
		return where + ` AND group_name = ?2 AND subscriber = ?3`, []any{version, q.Group, q.Subscriber}
	}
	return where, []any{version}
}

func (d *sqlite) heads(ctx context.Context, db querier, b storage.Box, version string, q storage.HeadQuery) ([]head, error) {
	table := d.table(b)
	lane, args := d.keyLane(b, version, q)
	first := `WITH RECURSIVE lane AS (VALUES (` + sqliteNumbered(len(args)) + `)), ` // the arguments that follow are not numbered
	columns := `SELECT t.seq, t.ordering_key, t.id, t.owner, EXISTS (SELECT 1 FROM ` + d.instances +
		` WHERE number = t.owner AND ended_at IS NULL), t.due_at, t.due_at - ` + sqliteNow + `, length(t.headers) + length(t.body)`
	if len(q.Keys) > 0 {
		n := padded(len(q.Keys), rowsPer)
		for _, key := range q.Keys {
			args = append(args, []byte(key))
		}
		for range n - len(q.Keys) {
			args = append(args, nil) // no key
		}
		return readHeads(ctx, db, query{first + `k(key) AS (VALUES ` + tuples(n, `(?)`) + `) ` + columns + ` FROM k CROSS JOIN ` + table +
			` AS t ON t.seq = (SELECT seq FROM ` + table + ` WHERE ` + lane +
			` AND ordering_key = k.key ORDER BY seq LIMIT 1)`, args})
	}
	next := `(SELECT seq FROM ` + table + ` WHERE ` + lane + ` AND ordering_key > `
	const end = ` ORDER BY ordering_key, seq LIMIT 1)`
	args = append(args, bytesOf([]byte(q.After)), q.Limit)
	return readHeads(ctx, db, query{first + `p(after, most) AS (VALUES (?, ?)), hop(n, s) AS (SELECT 1, ` + next + `p.after` + end +
		` FROM p UNION ALL SELECT n + 1, ` + next + `(SELECT ordering_key FROM ` + table + ` WHERE seq = hop.s)` + end +
		` FROM hop CROSS JOIN p WHERE hop.s IS NOT NULL AND n < p.most) ` + columns + ` FROM hop CROSS JOIN ` + table + ` AS t ON t.seq = hop.s`, args})
}

// sqliteNumbered returns the parameters ?1 to ?n.
func sqliteNumbered(n int) string { return [...]string{1: `?1`, 3: `?1,?2,?3`}[n] }

func (d *sqlite) keySubscribers(ctx context.Context, db querier, version, group string) ([]string, error) {
	from := `SELECT min(subscriber) FROM ` + d.received +
		` WHERE version = ?1 AND group_name = ?2 AND ordering_key IS NOT NULL AND expires_at IS NULL`
	return readAll[string](ctx, db, textOf(`WITH RECURSIVE hop(s) AS (`+from+` UNION ALL SELECT (`+from+
		` AND subscriber > hop.s) FROM hop WHERE hop.s IS NOT NULL) SELECT CAST(s AS BLOB) FROM hop WHERE s IS NOT NULL`, version, group))
}

func (d *sqlite) keysOwned(version, group, subscriber string, numbers []int64) query {
	return textOf(`SELECT owner FROM `+d.received+` WHERE version = ? AND group_name = ? AND subscriber = ?`+
		` AND ordering_key IS NOT NULL AND expires_at IS NULL AND owner IN (`+marks(len(numbers))+`) LIMIT 1`,
		append([]any{version, group, subscriber}, anys(numbers)...)...)
}
