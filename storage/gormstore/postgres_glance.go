package gormstore

import (
	"context"
	"strconv"

	"github.com/capbus/gocap/storage"
)

func (d *postgres) glance(ctx context.Context, db querier, at glancePlace, _ *known, g glancing) (sights, error) {
	var a pgArgs
	table := d.table(at.box)
	with, parts := ``, ` SELECT `+strconv.Itoa(glanceBeat)+`, number, `+pgMicros("beat_at")+`, lease, (beat_at + `+pgSpan("lease")+` <= `+pgNow+
		`)::int::bigint FROM `+d.instances+` WHERE ended_at IS NULL`
	see := func(kind int, value, from string) {
		parts += ` UNION ALL (SELECT ` + strconv.Itoa(kind) + `, ` + value + `, 0, 0, 0` + from + `)`
	}
	if len(g.own) > 0 {
		from := ` FROM ` + a.lanes(pgLanes(g.own)) + ` CROSS JOIN LATERAL (SELECT due_at FROM ` + table + ` WHERE ` +
			a.inLane(at.box, at.version) + ` AND due_at IS NOT NULL AND owner = ` + a.add(at.number, "bigint") + ` ORDER BY due_at LIMIT 1) r`
		see(glanceOwn, pgMicros("min(r.due_at) - "+pgNow), from+` HAVING min(r.due_at) IS NOT NULL`)
	}
	if len(g.orphans) > 0 {
		var from string
		with, from = d.orphans(&a, at.box, at.version, storage.Query{Lanes: g.orphans})
		see(glanceOrphan, `coalesce(orphan.o, 0)`, from+` LIMIT 1`)
	}
	if len(g.keys) > 0 {
		lane := `version = ` + a.add(at.version, "text")
		order := ` ORDER BY ordering_key, seq`
		if at.box == storage.Inbox {
			lane += ` AND group_name = l.g AND subscriber = l.s`
		}
		see(glanceKey, `0`, ` FROM `+a.lanes(pgLanes(g.keys))+` WHERE (SELECT true FROM `+table+` WHERE `+lane+
			` AND ordering_key IS NOT NULL AND expires_at IS NULL`+order+` LIMIT 1) LIMIT 1`)
	}
	if len(g.groups) > 0 {
		see(glanceUnmatched, `0`, ` FROM `+a.names(g.groups)+` WHERE (SELECT true FROM `+table+` WHERE version = `+a.add(at.version, "text")+
			` AND group_name = convert_from(n.name, 'UTF8') AND subscriber = '' AND owner IS NULL AND expires_at IS NULL ORDER BY seq LIMIT 1) LIMIT 1`)
	}
	return d.own(with+parts, a).sights(ctx, db)
}

func pgLanes(lanes []storage.Lane) []pgLane {
	list := make([]pgLane, len(lanes))
	for i, l := range lanes {
		list[i] = pgLaneOf(i, 0, l.Subscriber, storage.Lane{Group: l.Group})
	}
	return list
}
