package gormstore

import (
	"context"
	"encoding/json"
	"math"

	"github.com/capbus/gocap/storage"
)

// pgColumns lists what reader.scan reads.
func pgColumns(b storage.Box) string {
	common := `seq, uuid_send(id), version, name, owner, headers, body, status, retries, takeovers, last_error, ` +
		pgMicros("due_at") + `, ` + pgMicros(pgNow+" - added_at") + `, expires_at IS NOT NULL, ordering_key`
	if b == storage.Inbox {
		return common + `, group_name, subscriber, message_id`
	}
	return common + `, ''::text, ''::text, ''::bytea`
}

// pgLane is a lane, or a pair of a lane and an owner, as an element of a list
// that is one parameter, whatever its length.
type pgLane struct {
	I     int    `json:"i"`
	Owner int64  `json:"o"`
	Group string `json:"g"`
	Sub   string `json:"s"`
	At    *int64 `json:"at"` // microseconds; null: from the start
	Seq   int64  `json:"q"`
	Limit int    `json:"n"`
}

func pgLaneOf(i int, owner int64, subscriber string, l storage.Lane) pgLane {
	p := pgLane{I: i, Owner: owner, Group: l.Group, Sub: subscriber, Limit: min(l.Limit, math.MaxInt32)}
	if l.After != (storage.Position{}) {
		at := l.After.DueAt.UnixMicro()
		p.At, p.Seq = &at, l.After.Seq
	}
	return p
}

// lanes is the list of lanes as a table. Its LIMIT tells the planner how long it
// is: of a function it expects a hundred rows, and plans, and compiles, for as
// many looks into the index.
func (a *pgArgs) lanes(list []pgLane) string {
	text, err := json.Marshal(list)
	if err != nil {
		panic("gormstore: lanes as JSON: " + err.Error()) // it has strings and numbers only
	}
	return `(SELECT * FROM json_to_recordset(` + a.add(string(text), "json") +
		`) AS j(i int, o bigint, g text, s text, at bigint, q bigint, n int) LIMIT ` + a.add(len(list), "bigint") + `) AS l`
}

// most is the limit of each lane: a number, for the planner, where they are all
// the same.
func (a *pgArgs) most(list []pgLane) string {
	for _, l := range list {
		if l.Limit != list[0].Limit {
			return `l.n`
		}
	}
	return a.add(list[0].Limit, "bigint")
}

// inLane is the condition for the rows of a lane, whoever owns them.
func (a *pgArgs) inLane(b storage.Box, version string) string {
	where := `version = ` + a.add(version, "text")
	if b == storage.Inbox {
		where += ` AND group_name = l.g AND subscriber = l.s`
	}
	return where + inLanes
}

// behind is the condition for rows behind the position of a lane.
const behind = `(due_at, seq) > (coalesce('epoch'::timestamptz + l.at * interval '1 microsecond', '-infinity'), l.q)`

func (d *postgres) due(b storage.Box, version string, owner int64, lanes []storage.Lane, most int) query {
	var a pgArgs
	list := make([]pgLane, len(lanes))
	for i, l := range lanes {
		list[i] = pgLaneOf(i, owner, l.Subscriber, l)
	}
	from := a.lanes(list)
	where := a.inLane(b, version) + ` AND owner = ` + a.add(owner, "bigint")
	rows := `SELECT r.*, sum(octet_length(headers) + octet_length(body)) OVER (ROWS UNBOUNDED PRECEDING)` +
		` - octet_length(headers) - octet_length(body) AS before FROM ` + from + ` CROSS JOIN LATERAL (SELECT * FROM ` +
		d.table(b) + ` WHERE ` + where + ` AND due_at <= ` + pgNow + ` AND ` + behind +
		` ORDER BY due_at, seq LIMIT ` + a.most(list) + `) r`
	limit := int64(math.MaxInt64)
	if most > 0 {
		limit = int64(most)
	}
	return d.own(`SELECT 1, 0::bigint, ''::bytea, '', '', 0::bigint, ''::bytea, ''::bytea, 0::smallint, 0, 0::smallint, '',`+
		` 0::bigint, `+pgMicros("min(r.due_at) - "+pgNow)+`, false, NULL::bytea, '', '', ''::bytea FROM `+from+
		` CROSS JOIN LATERAL (SELECT due_at FROM `+d.table(b)+` WHERE `+where+` AND due_at > `+pgNow+
		` ORDER BY due_at LIMIT 1) r HAVING min(r.due_at) IS NOT NULL`+
		` UNION ALL SELECT 0, `+pgColumns(b)+` FROM (`+rows+`) r WHERE before <= `+a.add(limit, "bigint"), a)
}

func (d *postgres) byID(b storage.Box, ids []storage.ID, owner int64) query {
	var a pgArgs
	return d.own(`SELECT 0, `+pgColumns(b)+` FROM `+d.table(b)+` WHERE id = ANY(`+a.add(pgIDs(ids), "uuid[]")+
		`) AND owner = `+a.add(owner, "bigint")+` AND due_at IS NOT NULL`, a)
}

func (d *postgres) unmatched(version, group string, after int64, most int) query {
	var a pgArgs
	return d.own(`SELECT 0, `+pgColumns(storage.Inbox)+` FROM `+d.received+` WHERE version = `+a.add(version, "text")+
		` AND group_name = `+a.add(group, "text")+` AND subscriber = '' AND owner IS NULL AND expires_at IS NULL`+
		` AND seq > `+a.add(after, "bigint")+` ORDER BY seq LIMIT `+a.add(most, "bigint"), a)
}

func (d *postgres) subscribers(ctx context.Context, db querier, version, group string, owner int64) ([]string, error) {
	var a pgArgs
	from := `SELECT subscriber FROM ` + d.received + ` WHERE version = ` + a.add(version, "text") +
		` AND group_name = ` + a.add(group, "text") + ` AND due_at IS NOT NULL` + inLanes
	if owner == 0 {
		from += ` AND owner IS NULL`
	} else {
		from += ` AND owner = ` + a.add(owner, "bigint")
	}
	const first = ` ORDER BY owner, group_name, subscriber LIMIT 1`
	return readAll[string](ctx, db, d.own(`WITH RECURSIVE hop(s) AS ((`+from+first+`) UNION ALL SELECT (`+from+
		` AND subscriber > hop.s`+first+`) FROM hop WHERE hop.s IS NOT NULL) SELECT s FROM hop WHERE s IS NOT NULL`, a))
}

func (d *postgres) orphanage(
	ctx context.Context, db querier, b storage.Box, version string, q storage.Query, found func(lane int, owner int64),
) error {
	var a pgArgs
	with, from := d.orphans(&a, b, version, q)
	return d.own(with+` SELECT l.i, orphan.o`+from, a).pairs(ctx, db, found)
}

// orphans is pairs of a lane, l, and an owner, orphan, who is not living and has
// rows there. It hops over the owners.
func (d *postgres) orphans(a *pgArgs, b storage.Box, version string, q storage.Query) (with, from string) {
	list := make([]pgLane, len(q.Lanes))
	for i, l := range q.Lanes {
		list[i] = pgLaneOf(i, 0, l.Subscriber, l)
	}
	table := d.table(b)
	inVersion := `version = ` + a.add(version, "text")
	due := ` AND due_at IS NOT NULL`
	if !everySubscriber(b, q) {
		due = ` AND due_at <= ` + pgNow + ` - ` + pgSpan(a.add(stale(q), "bigint"))
	}
	lane := inVersion + inLanes
	if b == storage.Inbox {
		lane += ` AND group_name = l.g`
		if !everySubscriber(b, q) {
			lane += ` AND subscriber = l.s`
		}
	}
	// A subquery with LIMIT is looked up row by row; EXISTS might be hashed, for
	// which the whole table is read. In the order of the index: the planner expects
	// nearly all rows to have no owner, and to find one by reading the table; there
	// are as many, but they are final.
	order := ` ORDER BY owner, due_at LIMIT 1)`
	if b == storage.Inbox {
		order = ` ORDER BY owner, group_name, subscriber, due_at LIMIT 1)`
	}
	has := func(owner string) string {
		return `(SELECT true FROM ` + table + ` WHERE ` + lane + ` AND owner ` + owner + due + order
	}
	// The ranges between the living numbers: their own rows come and go, and what
	// is left of them in the index until a VACUUM is not to be walked through.
	hop := func(above, below string) string {
		return `(SELECT min(owner) FROM ` + table + ` WHERE ` + inVersion + inLanes + ` AND due_at IS NOT NULL AND owner > ` + above +
			` AND owner < ` + below + `)`
	}
	with = `WITH RECURSIVE living AS (SELECT number FROM ` + d.instances + ` WHERE ended_at IS NULL),` +
		` gap(lo, hi) AS (SELECT coalesce(lag(number) OVER (ORDER BY number), 0), number FROM living` +
		` UNION ALL SELECT coalesce(max(number), 0), ` + pgMost + ` FROM living),` +
		` hop(o, hi) AS (SELECT ` + hop("lo", "hi") + `, hi FROM gap UNION ALL SELECT ` + hop("hop.o", "hop.hi") +
		`, hop.hi FROM hop WHERE hop.o IS NOT NULL),` +
		` orphan(o) AS (SELECT o FROM hop WHERE o IS NOT NULL UNION ALL SELECT NULL)`
	return with, ` FROM orphan CROSS JOIN ` + a.lanes(list) +
		` WHERE CASE WHEN orphan.o IS NULL THEN ` + has(`IS NULL`) + ` ELSE ` + has(`= orphan.o`) + ` END`
}

// pgMost is more than any number of an instance.
const pgMost = `9223372036854775807`

// stale is how long rows must have been due, in microseconds.
func stale(q storage.Query) int64 { return max(q.Stale, 0).Microseconds() }

func (d *postgres) candidates(b storage.Box, version string, q storage.Query, ps []pair) query {
	var a pgArgs
	list := make([]pgLane, len(ps))
	for i, p := range ps {
		list[i] = pgLaneOf(p.lane, p.owner, p.subscriber, q.Lanes[p.lane])
	}
	from := a.lanes(list)
	rows := `SELECT seq, due_at, octet_length(headers) + octet_length(body) AS size FROM ` + d.table(b) + ` WHERE ` +
		a.inLane(b, version) + ` AND due_at <= ` + pgNow + ` - ` + pgSpan(a.add(stale(q), "bigint")) + ` AND ` + behind
	limit := ` LIMIT ` + a.most(list) + `)`
	// That all owners are NULL does not tell the planner that the index has their
	// rows in order of due_at; ordered by what is the same in all of them, it does.
	unowned := ` ORDER BY owner, due_at, seq`
	if b == storage.Inbox {
		unowned = ` ORDER BY owner, group_name, subscriber, due_at, seq`
	}
	return d.own(`SELECT l.i, c.seq, l.o, `+pgMicros("c.due_at")+`, c.size FROM `+from+` CROSS JOIN LATERAL (`+
		`(`+rows+` AND owner = l.o ORDER BY due_at, seq`+limit+` UNION ALL (`+rows+` AND l.o = 0 AND owner IS NULL`+
		unowned+limit+`) c`, a)
}

// candidatesByID: OFFSET 0 lets the ids alone choose the index. Where a table was
// never analyzed, the planner takes the condition on the version for the better
// one, and reads all rows of it.
func (d *postgres) candidatesByID(b storage.Box, version string, ids []storage.ID) query {
	var a pgArgs
	return d.own(`SELECT 0, seq, coalesce(owner, 0), `+pgMicros("due_at")+`, octet_length(headers) + octet_length(body) FROM (SELECT * FROM `+
		d.table(b)+` WHERE id = ANY(`+a.add(pgIDs(ids), "uuid[]")+`) OFFSET 0) AS r WHERE version = `+a.add(version, "text")+
		` AND due_at IS NOT NULL AND (owner IS NULL OR (SELECT true FROM `+d.instances+
		` WHERE number = r.owner AND ended_at IS NULL LIMIT 1) IS NULL)`, a)
}
