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
		return `(SELECT seq FROM ` + table + ` WHERE ` + inVersion + ` AND due_at IS NOT NULL AND ` + where +
			` ORDER BY ` + order + `due_at, seq LIMIT 1)`
	}
	hops := func(name, from, next, order string) string {
		return name + `(seq) AS (SELECT ` + first(from, order) + ` UNION ALL SELECT n.seq FROM ` + name + ` JOIN ` + table +
			` AS l ON l.seq = ` + name + `.seq CROSS JOIN LATERAL ` + first(next, order) + ` AS n)`
	}
	if b == storage.Outbox {
		return d.own(`WITH RECURSIVE `+hops(`hop`, `owner > 0`, `owner > l.owner`, `owner, `)+
			` SELECT '', `+pgMicros("r.due_at - "+pgNow)+`, `+pgMicros(pgNow+" - r.added_at")+`, r.status, 0 FROM (SELECT seq FROM hop`+
			` UNION ALL SELECT `+first(`owner IS NULL`, `owner, `)+`) AS f JOIN `+table+` AS r ON r.seq = f.seq`, a).firstRows(ctx, db)
	}
	unmatched := `CASE WHEN r.owner IS NULL AND r.subscriber = '' THEN (SELECT count(*) FROM (SELECT FROM ` + table + ` AS u WHERE ` + `u.` + inVersion +
		` AND u.group_name = r.group_name AND u.subscriber = '' AND u.owner IS NULL AND u.expires_at IS NULL LIMIT ` +
		a.add(most, "bigint") + `) AS few) ELSE 0 END`
	return d.own(`WITH RECURSIVE `+
		hops(`hop`, `owner > 0`, `(owner, group_name, subscriber) > (l.owner, l.group_name, l.subscriber)`, `owner, group_name, subscriber, `)+`, `+
		hops(`free`, `owner IS NULL`, `owner IS NULL AND (group_name, subscriber) > (l.group_name, l.subscriber)`, `owner, group_name, subscriber, `)+
		` SELECT r.group_name, `+pgMicros("r.due_at - "+pgNow)+`, `+pgMicros(pgNow+" - r.added_at")+`, r.status, `+unmatched+
		` FROM (SELECT seq FROM hop UNION ALL SELECT seq FROM free) AS f JOIN `+table+` AS r ON r.seq = f.seq`, a).firstRows(ctx, db)
}

func (d *postgres) versions(ctx context.Context, db querier, b storage.Box, most int) ([]storage.VersionRows, error) {
	var a pgArgs
	table := d.table(b)
	hop := `SELECT min(version) FROM ` + table + ` WHERE due_at IS NOT NULL`
	return d.own(`WITH RECURSIVE hop(v) AS ((`+hop+`) UNION ALL SELECT (`+hop+` AND version > hop.v) FROM hop WHERE hop.v IS NOT NULL)`+
		` SELECT v, (SELECT count(*) FROM (SELECT FROM `+table+` WHERE version = hop.v AND due_at IS NOT NULL LIMIT `+a.add(most, "bigint")+
		`) AS few), coalesce((SELECT true FROM `+d.instances+` WHERE box = `+a.add(b.String(), "text")+
		` AND version = hop.v AND ended_at IS NULL AND beat_at + `+pgSpan("lease")+` > `+pgNow+` LIMIT 1), false) FROM hop WHERE v IS NOT NULL`, a).versionRows(ctx, db)
}
