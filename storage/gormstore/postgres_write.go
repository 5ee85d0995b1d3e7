package gormstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/capbus/gocap/storage"
)

// insertOutbox is run in the application's transaction, so as its driver runs
// statements.
func (d *postgres) insertOutbox(recs []*storage.Record) query {
	a := pgArgs{args: make([]any, 0, 8*len(recs))}
	var sb strings.Builder
	skip, withKey, key := false, keyed(recs), ``
	if withKey {
		key = `, ordering_key`
	}
	for i, r := range recs {
		skip = skip || r.GivenID
		status, due, wait := startOf(r)
		if i > 0 {
			sb.WriteString(`, `)
		}
		sb.WriteString(`(` + a.add(r.ID.String(), "uuid") + `, ` + a.add(r.Version, "text") + `, ` + a.add(r.Topic, "text") +
			`, ` + a.add(ownerOf(r.Owner), "bigint") + `, ` + a.add(bytesOf(r.Headers), "bytea") +
			`, ` + a.add(bytesOf(r.Body), "bytea"))
		switch {
		case due != nil:
			sb.WriteString(`, 1, 'epoch'::timestamptz + ` + pgSpan(a.add(due, "bigint")))
		case status == storage.Delayed:
			sb.WriteString(`, 1, ` + pgClock + ` + ` + pgSpan(a.add(wait, "bigint")))
		default:
			sb.WriteString(`, 0, ` + pgClock)
		}
		sb.WriteString(`, ` + pgClock + `, ` + pgClock)
		if withKey {
			sb.WriteString(`, ` + a.add(keyOf(r.Key), "bytea"))
		}
		sb.WriteString(`)`)
	}
	text := `INSERT INTO ` + d.published +
		` (id, version, name, owner, headers, body, status, due_at, added_at, updated_at` + key + `) VALUES ` + sb.String()
	if skip {
		text += ` ON CONFLICT (id) DO NOTHING`
	}
	return query{text, a.args}
}

// insertInbox gives headers and bodies one parameter each, and all the other
// values one a column: to read a parameter for each value takes the server longer
// than to store the rows.
func (d *postgres) insertInbox(ctx context.Context, tx conn, rows []inboxRow, inserted idSet) error {
	var a pgArgs
	column := func(typ string, of func(inboxRow) string) string {
		parts := make([]string, len(rows))
		for i, r := range rows {
			parts[i] = of(r)
		}
		return a.add(`{`+strings.Join(parts, ",")+`}`, typ+`[]`)
	}
	number := func(of func(inboxRow) int64) string {
		return column("bigint", func(r inboxRow) string { return strconv.FormatInt(of(r), 10) })
	}
	list := func(of func(inboxRow) []byte) string {
		parts := make([]string, len(rows))
		for i, r := range rows {
			parts[i] = a.add(bytesOf(of(r)), "bytea")
		}
		return `ARRAY[` + strings.Join(parts, ",") + `]`
	}
	columns := []string{
		column("uuid", func(r inboxRow) string { return r.ID.String() }),
		column("text", func(r inboxRow) string { return pgQuoted(r.version) }),
		column("text", func(r inboxRow) string { return pgQuoted(r.Group) }),
		column("text", func(r inboxRow) string { return pgQuoted(r.Subscriber) }),
		column("text", func(r inboxRow) string { return pgQuoted(pgText(r.Topic)) }),
		column("bytea", func(r inboxRow) string { return pgHex(r.key) }),
		column("bytea", func(r inboxRow) string { return pgHex(r.Key) }),
		column("text", func(r inboxRow) string { return pgQuoted(r.fault) }),
		column("boolean", func(r inboxRow) string { return strconv.FormatBool(r.due) }),
		number(func(r inboxRow) int64 { return r.owner }),
		number(func(r inboxRow) int64 { return int64(r.status) }),
		number(func(r inboxRow) int64 { return r.keep }),
		list(func(r inboxRow) []byte { return r.Headers }),
		list(func(r inboxRow) []byte { return r.Body }),
	}
	return d.own(`INSERT INTO `+d.received+` (id, version, group_name, subscriber, name, message_id, owner, headers, body,`+
		` status, last_error, due_at, expires_at, added_at, updated_at, ordering_key)`+
		` SELECT id, ver, grp, sub, topic, mid, nullif(owner, 0), headers, body, status, fault, CASE WHEN due THEN `+pgClock+` END,`+
		` CASE WHEN keep >= 0 THEN `+pgClock+` + `+pgSpan("keep")+` END, `+pgClock+`, `+pgClock+`, nullif(okey, ''::bytea)`+
		` FROM unnest(`+strings.Join(columns, ", ")+`) AS r(id, ver, grp, sub, topic, mid, okey, fault, due, owner, status, keep, headers, body)`+
		` ON CONFLICT (version, group_name, subscriber, name, message_id) DO NOTHING RETURNING uuid_send(id)`, a).
		ids(ctx, tx, inserted)
}

// pgQuoted is a text as an element of an array that is one parameter.
func pgQuoted(s string) string {
	return `"` + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"`, `\"`) + `"`
}

// pgHex is a bytea as an element of an array that is one parameter.
func pgHex(s string) string { return `"\\x` + hex.EncodeToString([]byte(s)) + `"` }

// pgText makes a topic from outside fit for a text in an index: a broker delivers
// any bytes, and as many as it likes. What is too long keeps its beginning, and
// what tells it from others that begin so.
func pgText(s string) string {
	const most = 255
	if clean := storage.CleanError(s); len(clean) <= most {
		return clean
	}
	sum := sha256.Sum256([]byte(s))
	tail := " sha256:" + hex.EncodeToString(sum[:])
	cut := most - len(tail)
	return strings.ToValidUTF8(storage.CleanError(s)[:cut], "") + tail
}

func (d *postgres) removeUnmatched(version string, id storage.ID) query {
	var a pgArgs
	return d.own(`DELETE FROM `+d.received+` WHERE id = `+a.add(id.String(), "uuid")+` AND version = `+a.add(version, "text")+
		` AND subscriber = '' AND owner IS NULL AND expires_at IS NULL`, a)
}

func (d *postgres) take(ctx context.Context, tx conn, r *reader, t taking) error {
	var a pgArgs
	keys := a.add(pgNumbers(t.keys), "bigint[]")
	where := `seq = k.v AND owner `
	if t.owner == 0 {
		where += `IS NULL`
	} else {
		where += `= ` + a.add(t.owner, "bigint")
	}
	if t.mustBeDue {
		where += ` AND due_at <= ` + pgNow
	} else {
		where += ` AND due_at IS NOT NULL`
	}
	table := d.table(t.box)
	// One by one, so that also a plan that was kept since the table was empty looks
	// them up by key.
	return d.own(`WITH free AS MATERIALIZED (SELECT r.seq AS key FROM unnest(`+keys+`) AS k(v) CROSS JOIN LATERAL (SELECT seq FROM `+
		table+` WHERE `+where+` LIMIT 1 FOR UPDATE SKIP LOCKED) AS r)`+` UPDATE `+table+` SET owner = `+a.add(t.number, "bigint")+`, updated_at = `+pgClock+
		`, takeovers = CASE WHEN takeovers = 0 AND `+a.add(t.died, "boolean")+` THEN 1 ELSE takeovers END`+
		` FROM free WHERE seq = free.key RETURNING 0, `+pgColumns(t.box), a).into(ctx, tx, r)
}

func (d *postgres) claim(ctx context.Context, tx conn, r *reader, b storage.Box, number int64, ids []storage.ID) error {
	var a pgArgs
	return d.own(`UPDATE `+d.table(b)+` SET updated_at = `+pgClock+`, status = CASE status WHEN 1 THEN 0 ELSE status END`+
		`, takeovers = CASE WHEN takeovers > 0 THEN takeovers + 1 ELSE 0 END WHERE id = ANY(`+a.add(pgIDs(ids), "uuid[]")+
		`) AND owner = `+a.add(number, "bigint")+` AND CASE status WHEN 1 THEN due_at <= `+pgNow+
		` ELSE takeovers > 0 AND due_at IS NOT NULL END RETURNING 0, `+pgColumns(b), a).into(ctx, tx, r)
}

func (d *postgres) succeed(ctx context.Context, tx conn, s settling, ids []storage.ID, keep int64) error {
	var a pgArgs
	return d.settles(s, `UPDATE `+d.table(s.box)+` SET status = 2, takeovers = 0, due_at = NULL, owner = NULL, updated_at = `+pgClock+
		`, expires_at = `+pgClock+` + `+pgSpan(a.add(keep, "bigint"))+` WHERE id = ANY(`+a.add(pgIDs(ids), "uuid[]")+
		`) AND owner = `+a.add(s.number, "bigint")+` AND expires_at IS NULL RETURNING uuid_send(id)`, a).ids(ctx, tx, s.done)
}

func (d *postgres) remove(ctx context.Context, tx conn, s settling, ids []storage.ID) error {
	var a pgArgs
	return d.settles(s, `DELETE FROM `+d.table(s.box)+` WHERE id = ANY(`+a.add(pgIDs(ids), "uuid[]")+
		`) AND owner = `+a.add(s.number, "bigint")+` AND expires_at IS NULL RETURNING uuid_send(id)`, a).ids(ctx, tx, s.done)
}

// settle: the kinds are those of storage.OutcomeKind.
func (d *postgres) settle(ctx context.Context, tx conn, s settling, outcomes []outcomeRow) error {
	type element struct {
		ID       string `json:"id"`
		Kind     int    `json:"kind"`
		Attempt  int    `json:"attempt"`
		Wait     int64  `json:"wait"`
		Callback bool   `json:"callback"`
		Claimed  bool   `json:"claimed"`
		Error    string `json:"error"`
	}
	list := make([]element, len(outcomes))
	ids := make([]storage.ID, len(outcomes))
	for i, o := range outcomes {
		ids[i] = o.ID
		list[i] = element{o.ID.String(), int(o.Kind), o.Attempt, o.wait, o.Callback, o.Claimed, o.text}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	var a pgArgs
	wait := pgClock + ` + ` + pgSpan("o.wait")
	return d.settles(s, `UPDATE `+d.table(s.box)+` AS r SET updated_at = `+pgClock+
		`, status = CASE WHEN o.kind IN (2, 4) THEN 3 ELSE status END`+
		`, retries = CASE WHEN o.attempt > 0 THEN o.attempt ELSE retries END`+
		`, takeovers = CASE WHEN o.kind <> 6 THEN 0 WHEN o.claimed AND takeovers > 1 THEN takeovers - 1 ELSE takeovers END`+
		`, due_at = CASE o.kind WHEN 2 THEN `+wait+` WHEN 3 THEN `+wait+
		` WHEN 4 THEN CASE WHEN o.callback THEN `+pgClock+` END WHEN 5 THEN NULL ELSE due_at END`+
		`, owner = CASE WHEN o.kind = 5 OR o.kind = 4 AND NOT o.callback THEN NULL ELSE owner END`+
		`, expires_at = CASE o.kind WHEN 4 THEN `+wait+` ELSE expires_at END`+
		`, last_error = CASE o.error WHEN '' THEN last_error ELSE o.error END`+
		` FROM json_to_recordset(`+a.add(string(text), "json")+
		`) AS o(id uuid, kind int, attempt int, wait bigint, callback boolean, claimed boolean, error text)`+
		` WHERE r.id = o.id AND r.id = ANY(`+a.add(pgIDs(ids), "uuid[]")+`) AND r.owner = `+a.add(s.number, "bigint")+
		` AND CASE o.kind WHEN 5 THEN expires_at IS NOT NULL AND due_at IS NOT NULL WHEN 6 THEN due_at IS NOT NULL`+
		` ELSE expires_at IS NULL END RETURNING uuid_send(r.id)`, a).ids(ctx, tx, s.done)
}

// purge deletes rows by key that it finds by expiry.
func (d *postgres) purge(ctx context.Context, tx conn, p storage.Purge) (int64, error) {
	var a pgArgs
	t := d.table(p.Box)
	return d.own(`WITH old AS MATERIALIZED (SELECT seq AS key FROM `+t+` WHERE version = `+a.add(p.Version, "text")+
		` AND due_at IS NULL AND expires_at <= `+pgNow+` ORDER BY expires_at LIMIT `+a.add(p.Limit, "bigint")+
		` FOR UPDATE SKIP LOCKED) DELETE FROM `+t+` USING old WHERE seq = old.key`, a).changed(ctx, tx)
}

func (d *postgres) missing(err error) bool {
	state := sqlState(err)
	return state == "42P01" || state == "3F000" // undefined table, schema
}
