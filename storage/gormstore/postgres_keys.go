package gormstore

import (
	"context"

	"github.com/capbus/gocap/storage"
)

// pgHead lists what the steps of a walk over heads carry.
const pgHead = `seq, ordering_key, id, owner, due_at, octet_length(headers) + octet_length(body) AS size`

// keyLane is the condition for the unfinished rows with a key of a lane.
func (a *pgArgs) keyLane(b storage.Box, version string, q storage.HeadQuery) string {
	where := `expires_at IS NULL AND version = ` + a.add(version, "text")
	if b == storage.Inbox {
		where += ` AND group_name = ` + a.add(q.Group, "text") + ` AND subscriber = ` + a.add(q.Subscriber, "text")
	}
	return where
}

// heads: each step has the order of the index on keys, which no other index can
// give; with ordering_key = k, in order of seq, the primary key could, by
// reading the table from its start.
func (d *postgres) heads(ctx context.Context, db querier, b storage.Box, version string, q storage.HeadQuery) ([]head, error) {
	var a pgArgs
	lane := a.keyLane(b, version, q)
	const first = ` ORDER BY ordering_key, seq LIMIT 1`
	step := `SELECT ` + pgHead + ` FROM ` + d.table(b) + ` WHERE ` + lane + ` AND ordering_key `
	answer := `SELECT seq, ordering_key, uuid_send(id), owner, (SELECT true FROM ` + d.instances +
		` WHERE number = owner AND ended_at IS NULL LIMIT 1) IS NOT NULL, ` + pgMicros("due_at") + `, ` +
		pgMicros("due_at - "+pgNow) + `, size FROM `
	if len(q.Keys) > 0 {
		keys := a.names(q.Keys)
		return readHeads(ctx, db, d.own(answer+keys+` CROSS JOIN LATERAL (`+step+`BETWEEN n.name AND n.name`+first+`) AS h`, a))
	}
	return readHeads(ctx, db, d.own(`WITH RECURSIVE hop AS ((SELECT 1 AS n, h.* FROM (`+step+`> `+a.add(bytesOf([]byte(q.After)), "bytea")+first+
		`) AS h) UNION ALL SELECT hop.n + 1, h.* FROM hop CROSS JOIN LATERAL (`+step+`> hop.ordering_key`+first+
		`) AS h WHERE hop.n < `+a.add(q.Limit, "bigint")+`) `+answer+`hop`, a))
}

func (d *postgres) keySubscribers(ctx context.Context, db querier, version, group string) ([]string, error) {
	var a pgArgs
	from := `SELECT min(subscriber) FROM ` + d.received + ` WHERE version = ` + a.add(version, "text") +
		` AND group_name = ` + a.add(group, "text") + ` AND ordering_key IS NOT NULL AND expires_at IS NULL`
	return readAll[string](ctx, db, d.own(`WITH RECURSIVE hop(s) AS ((`+from+`) UNION ALL SELECT (`+from+
		` AND subscriber > hop.s) FROM hop WHERE hop.s IS NOT NULL) SELECT s FROM hop WHERE s IS NOT NULL`, a))
}

func (d *postgres) keysOwned(version, group, subscriber string, numbers []int64) query {
	var a pgArgs
	return d.own(`SELECT owner FROM `+d.received+` WHERE `+a.keyLane(storage.Inbox, version, storage.HeadQuery{Group: group, Subscriber: subscriber})+
		` AND ordering_key IS NOT NULL AND owner = ANY(`+a.add(pgNumbers(numbers), "bigint[]")+`) LIMIT 1`, a)
}
