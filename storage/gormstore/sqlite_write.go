package gormstore

import (
	"context"

	"github.com/capbus/gocap/storage"
)

// The inserts name the clock once, not once a row: SQLite compares every
// constant of a statement with every other, and the parsing would take most of
// the time of a batch.

func (d *sqlite) insertOutbox(recs []*storage.Record) query {
	skip, withKey, key, tuple := false, keyed(recs), ``, `(?,?,?,?,?,?,?,?,?)`
	if withKey {
		key, tuple = `, ordering_key`, `(?,?,?,?,?,?,?,?,?,?)`
	}
	args := make([]any, 0, 10*len(recs))
	for _, r := range recs {
		skip = skip || r.GivenID
		status, due, wait := startOf(r)
		args = append(args, r.ID[:], r.Version, r.Topic, ownerOf(r.Owner), bytesOf(r.Headers), bytesOf(r.Body),
			int64(status), due, wait)
		if withKey {
			args = append(args, keyOf(r.Key))
		}
	}
	q := `WITH v(id, version, name, owner, headers, body, status, due, wait` + key + `) AS (VALUES ` +
		tuples(len(recs), tuple) + `) INSERT INTO ` + d.published +
		` (id, version, name, owner, headers, body, status, due_at, added_at, updated_at` + key + `)` +
		` SELECT id, version, name, owner, headers, body, status, coalesce(due, ` + sqliteNow + ` + wait), ` +
		sqliteNow + `, ` + sqliteNow + key + ` FROM v WHERE true`
	if skip {
		q += ` ON CONFLICT (id) DO NOTHING`
	}
	return query{q, args}
}

func (d *sqlite) insertInbox(ctx context.Context, tx conn, rows []inboxRow, inserted idSet) error {
	args := make([]any, 0, 14*len(rows))
	for _, r := range rows {
		var due, keep any
		if r.due {
			due = int64(0)
		}
		if r.keep >= 0 {
			keep = r.keep
		}
		args = append(args, r.ID[:], r.version, r.Group, r.Subscriber, r.Topic, r.key, ownerOf(r.owner),
			bytesOf(r.Headers), bytesOf(r.Body), int64(r.status), r.fault, due, keep, keyOf(r.Key))
	}
	return query{`WITH v(id, version, group_name, subscriber, name, message_id, owner, headers, body, status, last_error,` +
		` wait, keep, ordering_key) AS (VALUES ` + tuples(len(rows), `(?,?,?,?,?,?,?,?,?,?,?,?,?,?)`) + `) INSERT INTO ` + d.received +
		` (id, version, group_name, subscriber, name, message_id, owner, headers, body, status, last_error,` +
		` due_at, expires_at, added_at, updated_at, ordering_key) SELECT id, version, group_name, subscriber, name, message_id,` +
		` owner, headers, body, status, last_error, ` + sqliteNow + ` + wait, ` + sqliteNow + ` + keep, ` +
		sqliteNow + `, ` + sqliteNow + `, ordering_key FROM v WHERE true` +
		` ON CONFLICT (version, group_name, subscriber, name, message_id) DO NOTHING RETURNING id`, args}.
		ids(ctx, tx, inserted)
}

func (d *sqlite) removeUnmatched(version string, id storage.ID) query {
	return textOf(`DELETE FROM `+d.received+
		` WHERE id = ? AND version = ? AND subscriber = '' AND owner IS NULL AND expires_at IS NULL`, id[:], version)
}

func (d *sqlite) take(ctx context.Context, tx conn, r *reader, t taking) error {
	args := append([]any{t.number, t.died}, anys(t.keys)...)
	q := `UPDATE ` + d.table(t.box) + ` SET owner = ?, updated_at = ` + sqliteNow +
		`, takeovers = CASE WHEN takeovers = 0 AND ? THEN 1 ELSE takeovers END WHERE seq IN (` + marks(len(t.keys)) + `)`
	if t.owner == 0 {
		q += ` AND owner IS NULL`
	} else {
		q += ` AND owner = ?`
		args = append(args, t.owner)
	}
	if t.mustBeDue {
		q += ` AND due_at <= ` + sqliteNow
	} else {
		q += ` AND due_at IS NOT NULL`
	}
	return query{q + ` RETURNING 0, ` + rowColumns(t.box), args}.into(ctx, tx, r)
}

func (d *sqlite) claim(ctx context.Context, tx conn, r *reader, b storage.Box, number int64, ids []storage.ID) error {
	return textOf(`UPDATE `+d.table(b)+` SET updated_at = `+sqliteNow+
		`, status = CASE status WHEN 1 THEN 0 ELSE status END`+
		`, takeovers = CASE WHEN takeovers > 0 THEN takeovers + 1 ELSE 0 END`+
		` WHERE id IN (`+marks(len(ids))+`) AND owner = ? AND CASE status WHEN 1 THEN due_at <= `+sqliteNow+
		` ELSE takeovers > 0 AND due_at IS NOT NULL END RETURNING 0, `+rowColumns(b), append(idArgs(ids), number)...).
		into(ctx, tx, r)
}

func (d *sqlite) succeed(ctx context.Context, tx conn, s settling, ids []storage.ID, keep int64) error {
	args := append(append([]any{keep}, idArgs(ids)...), s.number)
	return query{`UPDATE ` + d.table(s.box) + ` SET status = 2, takeovers = 0, due_at = NULL, owner = NULL, updated_at = ` +
		sqliteNow + `, expires_at = ` + sqliteNow + ` + ? WHERE id IN (` + marks(len(ids)) +
		`) AND owner = ? AND expires_at IS NULL RETURNING id`, args}.ids(ctx, tx, s.done)
}

func (d *sqlite) remove(ctx context.Context, tx conn, s settling, ids []storage.ID) error {
	return query{`DELETE FROM ` + d.table(s.box) + ` WHERE id IN (` + marks(len(ids)) +
		`) AND owner = ? AND expires_at IS NULL RETURNING id`, append(idArgs(ids), s.number)}.ids(ctx, tx, s.done)
}

// settle: the kinds are those of storage.OutcomeKind. The list of ids makes
// SQLite look the rows up by id; it would scan the table for the join.
func (d *sqlite) settle(ctx context.Context, tx conn, s settling, outcomes []outcomeRow) error {
	n := len(outcomes)
	args := make([]any, 0, 8*n+1)
	for _, o := range outcomes {
		args = append(args, o.ID[:], int64(o.Kind), o.Attempt, o.wait, o.Callback, o.Claimed, o.text)
	}
	for _, o := range outcomes {
		args = append(args, o.ID[:])
	}
	return query{`WITH o(id, kind, attempt, wait, callback, claimed, error) AS (VALUES ` +
		tuples(n, `(?,?,?,?,?,?,?)`) + `) UPDATE ` + d.table(s.box) + ` AS r SET updated_at = ` + sqliteNow +
		`, status = CASE WHEN o.kind IN (2, 4) THEN 3 ELSE status END` +
		`, retries = CASE WHEN o.attempt > 0 THEN o.attempt ELSE retries END` +
		`, takeovers = CASE o.kind WHEN 6 THEN takeovers - (o.claimed AND takeovers > 1) ELSE 0 END` +
		`, due_at = CASE o.kind WHEN 2 THEN ` + sqliteNow + ` + o.wait WHEN 3 THEN ` + sqliteNow + ` + o.wait` +
		` WHEN 4 THEN CASE WHEN o.callback THEN ` + sqliteNow + ` END WHEN 5 THEN NULL ELSE due_at END` +
		`, owner = CASE WHEN o.kind = 5 OR o.kind = 4 AND NOT o.callback THEN NULL ELSE owner END` +
		`, expires_at = CASE o.kind WHEN 4 THEN ` + sqliteNow + ` + o.wait ELSE expires_at END` +
		`, last_error = CASE o.error WHEN '' THEN last_error ELSE o.error END` +
		` FROM o WHERE r.id = o.id AND r.id IN (` + marks(n) + `) AND r.owner = ? AND CASE o.kind` +
		` WHEN 5 THEN expires_at IS NOT NULL AND due_at IS NOT NULL WHEN 6 THEN due_at IS NOT NULL` +
		` ELSE expires_at IS NULL END RETURNING id`, append(args, s.number)}.ids(ctx, tx, s.done)
}

// purge deletes rows by key that it finds by expiry.
func (d *sqlite) purge(ctx context.Context, tx conn, p storage.Purge) (int64, error) {
	t := d.table(p.Box)
	return textOf(`DELETE FROM `+t+` WHERE seq IN (SELECT seq FROM `+t+
		` WHERE version = ? AND due_at IS NULL AND expires_at <= `+sqliteNow+` ORDER BY expires_at`+limit+`)`,
		p.Version, p.Limit).changed(ctx, tx)
}
