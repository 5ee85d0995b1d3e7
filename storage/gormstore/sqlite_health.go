package gormstore

import (
	"context"

	"github.com/capbus/gocap/storage"
)

// waiting hops from the first row of one owner, group and subscriber to that of
// the next: it is found by its place in the index, and known by its seq.
func (d *sqlite) waiting(ctx context.Context, db querier, b storage.Box, version string, most int) ([]firstRow, error) {
	table := d.table(b)
	lane := ``
	if b == storage.Inbox {
		lane = `, group_name, subscriber`
	}
	first := func(where, order string) string {
		return `(SELECT seq FROM ` + table + ` WHERE version = ?1 AND due_at IS NOT NULL` + inLanes + ` AND ` + where + ` ORDER BY ` + order + `, due_at LIMIT 1)`
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
	return textOf(text+d.firsts(b, `r.owner IS NULL`)+` FROM (SELECT seq FROM hop`+free+`) AS f CROSS JOIN `+table+
		` AS r WHERE r.seq = f.seq`, version, most).firstRows(ctx, db)
}

// firsts begins the SELECT of what firstRows reads, of rows r. Those that match no
// subscription are counted once for each group, where one of them is as given.
func (d *sqlite) firsts(b storage.Box, once string) string {
	group, unmatched := `x''`, `0`
	if b == storage.Inbox {
		group = `CAST(r.group_name AS BLOB)`
		unmatched = `CASE WHEN ` + once + ` AND r.subscriber = '' THEN (SELECT count(*) FROM (SELECT 1 FROM ` + d.received +
			` WHERE version = ?1 AND group_name = r.group_name AND subscriber = '' AND owner IS NULL AND expires_at IS NULL` +
			` LIMIT ?2+0)) ELSE 0 END`
	}
	return ` SELECT ` + group + `, r.due_at - ` + sqliteNow + `, ` + sqliteNow + ` - r.added_at, r.status, ` + unmatched
}

// waitingKeys hops from lane to lane, and in each from key to key.
func (d *sqlite) waitingKeys(ctx context.Context, db querier, b storage.Box, version string, most int) ([]firstRow, error) {
	table := d.table(b)
	first := func(where, order string) string {
		return `(SELECT seq FROM ` + table + ` WHERE version = ?1 AND ` + inKeys + where + ` ORDER BY ` + order + `ordering_key, seq LIMIT 1)`
	}
	behind := func(name string) string {
		return ` FROM ` + name + ` CROSS JOIN ` + table + ` AS l WHERE l.seq = ` + name + `.seq`
	}
	lanes, same := `SELECT `+first(``, ``), ``
	if b == storage.Inbox {
		const order = `group_name, subscriber, `
		lanes = `SELECT ` + first(``, order) + ` UNION ALL SELECT ` +
			first(` AND (group_name, subscriber) > (l.group_name, l.subscriber)`, order) + behind(`lane`)
		same = ` AND group_name = l.group_name AND subscriber = l.subscriber`
	}
	return textOf(`WITH RECURSIVE p(version, most, keys) AS (VALUES (?, ?, ?)), lane(seq) AS (`+lanes+`), hop(seq, n) AS (SELECT seq, 1 FROM lane`+
		` UNION ALL SELECT `+first(same+` AND ordering_key > l.ordering_key`, ``)+`, n + 1`+behind(`hop`)+` AND n < ?3)`+
		d.firsts(b, `hop.n = 1`)+` FROM hop CROSS JOIN `+table+` AS r WHERE r.seq = hop.seq`, version, most, keysInspected).firstRows(ctx, db)
}

func (d *sqlite) versions(ctx context.Context, db querier, b storage.Box, most int) ([]storage.VersionRows, error) {
	var list []storage.VersionRows
	for _, in := range []string{`due_at IS NOT NULL` + inLanes, inKeys} {
		from := ` FROM ` + d.table(b) + ` WHERE ` + in
		hop := `SELECT min(version)` + from
		found, err := textOf(`WITH RECURSIVE p(box, most) AS (VALUES (?, ?)), hop(v) AS (`+hop+` UNION ALL SELECT (`+hop+
			` AND version > hop.v) FROM hop WHERE hop.v IS NOT NULL) SELECT CAST(v AS BLOB), (SELECT count(*) FROM (SELECT 1`+from+
			` AND version = hop.v LIMIT ?2+0)), EXISTS (SELECT 1 FROM `+d.instances+
			` WHERE box = ?1 AND version = hop.v AND ended_at IS NULL AND beat_at + lease > `+sqliteNow+`) FROM hop WHERE v IS NOT NULL`,
			b.String(), most).versionRows(ctx, db)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}
