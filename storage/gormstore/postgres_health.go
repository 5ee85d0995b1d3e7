package gormstore

import (
	"context"

	"github.com/capbus/gocap/storage"
)

// waiting hops from the first row of one owner, group and subscriber to that of
// the next: it is found by its place in the index, and known by its seq. Rows
// are ordered by their owner even where it is NULL in all: PostgreSQL takes no
// column that IS NULL for a constant, and would sort them.
func (d *postgres) waiting(ctx context.Context, db querier, b storage.Box, version string, most int) ([]firstRow, error) {
	var a pgArgs
	table := d.table(b)
	inVersion := `version = ` + a.add(version, "text")
	first := func(where, order string) string {
		return `(SELECT seq FROM ` + table + ` WHERE ` + inVersion + ` AND due_at IS NOT NULL` + inLanes + ` AND ` + where +
			` ORDER BY ` + order + `due_at, seq LIMIT 1)`
	}
	hops := func(name, from, next, order string) string {
		return name + `(seq) AS (SELECT ` + first(from, order) + ` UNION ALL SELECT n.seq FROM ` + name + pgRow(table, `l`, name) +
			` CROSS JOIN LATERAL ` + first(next, order) + ` AS n)`
	}
	if b == storage.Outbox {
		return d.own(`WITH RECURSIVE `+hops(`hop`, `owner > 0`, `owner > l.owner`, `owner, `)+d.firsts(&a, b, ``, most)+
			` FROM (SELECT seq FROM hop UNION ALL SELECT `+first(`owner IS NULL`, `owner, `)+`) AS f`+pgRow(table, `r`, `f`), a).firstRows(ctx, db)
	}
	return d.own(`WITH RECURSIVE `+
		hops(`hop`, `owner > 0`, `(owner, group_name, subscriber) > (l.owner, l.group_name, l.subscriber)`, `owner, group_name, subscriber, `)+`, `+
		hops(`free`, `owner IS NULL`, `owner IS NULL AND (group_name, subscriber) > (l.group_name, l.subscriber)`, `owner, group_name, subscriber, `)+
		d.firsts(&a, b, `r.owner IS NULL`, most)+
		` FROM (SELECT seq FROM hop UNION ALL SELECT seq FROM free) AS f`+pgRow(table, `r`, `f`), a).firstRows(ctx, db)
}

// pgRow joins the row of a seq by its primary key: PostgreSQL takes a hop for many
// rows, and would read the table for them.
func pgRow(table, name, of string) string {
	return ` CROSS JOIN LATERAL (SELECT * FROM ` + table + ` WHERE seq = ` + of + `.seq LIMIT 1) AS ` + name
}

// firsts begins the SELECT of what firstRows reads, of rows r. Those that match no
// subscription are counted once for each group, where one of them is as given.
func (d *postgres) firsts(a *pgArgs, b storage.Box, once string, most int) string {
	group, unmatched := `''`, `0`
	if b == storage.Inbox {
		group = `r.group_name`
		unmatched = `CASE WHEN ` + once + ` AND r.subscriber = '' THEN (SELECT count(*) FROM (SELECT FROM ` + d.received +
			` AS u WHERE u.version = r.version AND u.group_name = r.group_name AND u.subscriber = '' AND u.owner IS NULL` +
			` AND u.expires_at IS NULL LIMIT ` + a.add(most, "bigint") + `) AS few) ELSE 0 END`
	}
	return ` SELECT ` + group + `, ` + pgMicros("r.due_at - "+pgNow) + `, ` + pgMicros(pgNow+" - r.added_at") + `, r.status, ` + unmatched
}

// waitingKeys hops from lane to lane, and in each from key to key.
func (d *postgres) waitingKeys(ctx context.Context, db querier, b storage.Box, version string, most int) ([]firstRow, error) {
	var a pgArgs
	table := d.table(b)
	inVersion := `version = ` + a.add(version, "text")
	first := func(where, order string) string {
		return `(SELECT seq FROM ` + table + ` WHERE ` + inVersion + ` AND ` + inKeys + where + ` ORDER BY ` + order + `ordering_key, seq LIMIT 1)`
	}
	behind := func(name, next string) string {
		return ` FROM ` + name + pgRow(table, `l`, name) + ` CROSS JOIN LATERAL ` + next + ` AS s`
	}
	lanes, same := first(``, ``), ``
	if b == storage.Inbox {
		const order = `group_name, subscriber, `
		lanes = first(``, order) + ` UNION ALL SELECT s.seq` +
			behind(`lane`, first(` AND (group_name, subscriber) > (l.group_name, l.subscriber)`, order))
		same = ` AND group_name = l.group_name AND subscriber = l.subscriber`
	}
	return d.own(`WITH RECURSIVE lane(seq) AS (`+lanes+`), hop(seq, n) AS (SELECT seq, 1 FROM lane UNION ALL SELECT s.seq, hop.n + 1`+
		behind(`hop`, first(same+` AND ordering_key > l.ordering_key`, ``))+` WHERE hop.n < `+a.add(keysInspected, "bigint")+`)`+
		d.firsts(&a, b, `hop.n = 1`, most)+` FROM hop`+pgRow(table, `r`, `hop`), a).firstRows(ctx, db)
}

func (d *postgres) versions(ctx context.Context, db querier, b storage.Box, most int) ([]storage.VersionRows, error) {
	var list []storage.VersionRows
	orders := map[string]string{`due_at IS NOT NULL` + inLanes: `owner`, inKeys: `ordering_key`} // which make it take the index
	if b == storage.Inbox {
		orders[inKeys] = `group_name`
	}
	for in, order := range orders {
		var a pgArgs
		from := ` FROM ` + d.table(b) + ` WHERE ` + in
		hop := `SELECT min(version)` + from
		found, err := d.own(`WITH RECURSIVE hop(v) AS ((`+hop+`) UNION ALL SELECT (`+hop+` AND version > hop.v) FROM hop WHERE hop.v IS NOT NULL)`+
			` SELECT v, (SELECT count(*) FROM (SELECT`+from+` AND version = hop.v ORDER BY `+order+` LIMIT `+a.add(most, "bigint")+
			`) AS few), coalesce((SELECT true FROM `+d.instances+` WHERE box = `+a.add(b.String(), "text")+
			` AND version = hop.v AND ended_at IS NULL AND beat_at + `+pgSpan("lease")+` > `+pgNow+` LIMIT 1), false) FROM hop WHERE v IS NOT NULL`, a).
			versionRows(ctx, db)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}
