package gormstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/capbus/gocap/storage"
)

func (d *sqlite) glance(ctx context.Context, db querier, at glancePlace, _ *known, g glancing) (sights, error) {
	var tables, parts []string
	args := []any{at.version, at.number}
	table := d.table(at.box)
	list := func(name string, lanes []storage.Lane) {
		text, largs := sqliteLanes(name, lanes)
		tables, args = append(tables, text), append(args, largs...)
	}
	see := func(kind int, value, from string) {
		parts = append(parts, `SELECT `+strconv.Itoa(kind)+`, `+value+`, 0, 0, 0 FROM `+from)
	}
	in := func(lane string) string {
		if at.box == storage.Outbox {
			return `version = ?1`
		}
		return `version = ?1 AND group_name = ` + lane + `.g AND subscriber = ` + lane + `.s`
	}
	parts = append(parts, `SELECT `+strconv.Itoa(glanceBeat)+`, number, beat_at, lease, beat_at + lease <= `+sqliteNow+
		` FROM `+d.instances+` WHERE ended_at IS NULL`)
	if len(g.own) > 0 {
		list(`own`, g.own)
		see(glanceOwn, `d - `+sqliteNow, `(SELECT (SELECT min(due_at) FROM `+table+` WHERE `+in(`own`)+
			` AND owner = ?2 AND due_at IS NOT NULL`+inLanes+`) AS d FROM own WHERE i >= 0) WHERE d IS NOT NULL`)
	}
	if len(g.orphans) > 0 {
		list(`lane`, g.orphans)
		tables = append(tables, d.orphans(at.box))
		see(glanceOrphan, `coalesce(orphan.o, 0)`, `orphan CROSS JOIN lane WHERE lane.i >= 0 AND EXISTS (SELECT 1 FROM `+table+
			` WHERE `+in(`lane`)+` AND owner IS orphan.o AND due_at <= `+sqliteNow+inLanes+`)`)
	}
	if len(g.keys) > 0 {
		list(`keyed`, g.keys)
		see(glanceKey, `0`, `keyed WHERE i >= 0 AND EXISTS (SELECT 1 FROM `+table+` WHERE `+in(`keyed`)+` AND `+inKeys+`)`)
	}
	if len(g.groups) > 0 {
		groups := make([]storage.Lane, len(g.groups))
		for i, name := range g.groups {
			groups[i].Group = name
		}
		list(`unmatched`, groups)
		see(glanceUnmatched, `0`, `unmatched WHERE i >= 0 AND EXISTS (SELECT 1 FROM `+table+` WHERE `+in(`unmatched`)+
			` AND owner IS NULL AND expires_at IS NULL)`)
	}
	return query{`WITH RECURSIVE p(version, number) AS (VALUES (?, ?)), ` + strings.Join(tables, `, `) + ` ` + strings.Join(parts, ` UNION ALL `), args}.
		sights(ctx, db)
}
