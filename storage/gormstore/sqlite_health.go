package gormstore

import (
	"context"

	"github.com/capbus/gocap/storage"
)

// waiting hops from the first row of one owner, group and subscriber to that of
// the next: it is found by its place in the index, and known by its seq.
func (d *sqlite) waiting(ctx context.Context, db querier, b storage.Box, version string, most int) ([]firstRow, error) {
	table := d.table(b)
	lane, group, unmatched := ``, `x''`, `0`
	if b == storage.Inbox {
		lane, group = `, group_name, subscriber`, `CAST(r.group_name AS BLOB)`
		unmatched = `CASE WHEN r.owner IS NULL AND r.subscriber = '' THEN (SELECT count(*) FROM (SELECT 1 FROM ` + table +
			` WHERE version = ?1 AND group_name = r.group_name AND subscriber = '' AND owner IS NULL AND expires_at IS NULL` +
			` LIMIT ?2+0)) ELSE 0 END`
	}
	first := func(where, order string) string {
		return `(SELECT seq FROM ` + table + ` WHERE version = ?1 AND due_at IS NOT NULL AND ` + where + ` ORDER BY ` + order + `, due_at LIMIT 1)`
	}
	next, free := `owner > l.owner`, ` UNION ALL SELECT `+first(`owner IS NULL`, `version`)
	if b == storage.Inbox {
		next = `(owner, group_name, subscriber) > (l.owner, l.group_name, l.subscriber)`
		free = ` UNION ALL SELECT seq FROM free`
	}
	text := `WITH RECURSIVE p(version, most) AS (VALUES (?, ?)), hop(seq) AS (SELECT ` + first(`owner > 0`, `owner`+lane) +
		` UNION ALL SELECT ` + first(next, `owner`+lane) + ` FROM hop CROSS JOIN ` + table + ` AS l WHERE l.seq = hop.seq)`
	if b == storage.Inbox {
		text += `, free(seq) AS (SELECT ` + first(`owner IS NULL`, `group_name, subscriber`) +
			` UNION ALL SELECT ` + first(`owner IS NULL AND (group_name, subscriber) > (l.group_name, l.subscriber)`, `group_name, subscriber`) +
			` FROM free CROSS JOIN ` + table + ` AS l WHERE l.seq = free.seq)`
	}
	return textOf(text+` SELECT `+group+`, r.due_at - `+sqliteNow+`, `+sqliteNow+` - r.added_at, r.status, `+unmatched+
		` FROM (SELECT seq FROM hop`+free+`) AS f CROSS JOIN `+table+` AS r WHERE r.seq = f.seq`, version, most).firstRows(ctx, db)
}

func (d *sqlite) versions(ctx context.Context, db querier, b storage.Box, most int) ([]storage.VersionRows, error) {
	table := d.table(b)
	hop := `SELECT min(version) FROM ` + table + ` WHERE due_at IS NOT NULL`
	return textOf(`WITH RECURSIVE p(box, most) AS (VALUES (?, ?)), hop(v) AS (`+hop+` UNION ALL SELECT (`+hop+
		` AND version > hop.v) FROM hop WHERE hop.v IS NOT NULL) SELECT CAST(v AS BLOB), (SELECT count(*) FROM (SELECT 1 FROM `+table+
		` WHERE version = hop.v AND due_at IS NOT NULL LIMIT ?2+0)), EXISTS (SELECT 1 FROM `+d.instances+
		` WHERE box = ?1 AND version = hop.v AND ended_at IS NULL AND beat_at + lease > `+sqliteNow+`) FROM hop WHERE v IS NOT NULL`,
		b.String(), most).versionRows(ctx, db)
}
