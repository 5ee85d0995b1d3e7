package gormstore

import (
	"github.com/capbus/gocap/storage"
)

// The inserts name the clock once, not once a row: SQLite compares every
// constant of a statement with every other, and the parsing would take most of
// the time of a batch.

// insertOutbox inserts n records; with skip, none whose id is there.
// The values of a record are those of outboxValues.
func (t *sqliteText) insertOutbox(n int, skip bool) string {
	q := `WITH v(id, version, name, owner, headers, body, status, due, wait) AS (VALUES ` +
		tuples(n, `(?,?,?,?,?,?,?,?,?)`) + `) INSERT INTO ` + t.published +
		` (id, version, name, owner, headers, body, status, due_at, added_at, updated_at)` +
		` SELECT id, version, name, owner, headers, body, status, coalesce(due, ` + sqliteNow + ` + wait), ` +
		sqliteNow + `, ` + sqliteNow + ` FROM v WHERE true`
	if skip {
		q += ` ON CONFLICT (id) DO NOTHING`
	}
	return q
}

// insertInbox inserts n records that are not there yet, and returns their ids.
// The values of a record are those of inboxValues.
func (t *sqliteText) insertInbox(n int) string {
	return `WITH v(id, version, group_name, subscriber, name, message_id, owner, headers, body, status, last_error,` +
		` wait, keep) AS (VALUES ` + tuples(n, `(?,?,?,?,?,?,?,?,?,?,?,?,?)`) + `) INSERT INTO ` + t.received +
		` (id, version, group_name, subscriber, name, message_id, owner, headers, body, status, last_error,` +
		` due_at, expires_at, added_at, updated_at) SELECT id, version, group_name, subscriber, name, message_id,` +
		` owner, headers, body, status, last_error, ` + sqliteNow + ` + wait, ` + sqliteNow + ` + keep, ` +
		sqliteNow + `, ` + sqliteNow + ` FROM v WHERE true` +
		` ON CONFLICT (version, group_name, subscriber, name, message_id) DO NOTHING RETURNING id`
}

// removeUnmatched deletes a row that matched no subscription and that nobody
// has in hand.
func (t *sqliteText) removeUnmatched() string {
	return `DELETE FROM ` + t.received +
		` WHERE id = ? AND version = ? AND subscriber = '' AND owner IS NULL AND expires_at IS NULL`
}

// take makes n rows of one owner this member's. died: the owner died.
// Parameters: member, died, stale, keys, and the owner unless it is anyone.
func (t *sqliteText) take(b storage.Box, n int, anyone, due bool) string {
	q := `UPDATE ` + t.table(b) + ` SET owner = ?, updated_at = ` + sqliteNow +
		`, takeovers = CASE WHEN takeovers = 0 AND ? THEN 1 ELSE takeovers END WHERE seq IN (` + marks(n) + `)`
	if anyone {
		q += ` AND owner IS NULL`
	} else {
		q += ` AND owner = ?`
	}
	if due {
		q += ` AND due_at <= ` + sqliteNow
	} else {
		q += ` AND due_at IS NOT NULL`
	}
	return q + ` RETURNING 0, ` + rowColumns(b)
}

// claim counts n rows as begun. Parameters: ids, owner.
func (t *sqliteText) claim(b storage.Box, n int) string {
	return `UPDATE ` + t.table(b) + ` SET updated_at = ` + sqliteNow +
		`, status = CASE status WHEN 1 THEN 0 ELSE status END` +
		`, takeovers = CASE WHEN takeovers > 0 THEN takeovers + 1 ELSE 0 END` +
		` WHERE id IN (` + marks(n) + `) AND owner = ? AND CASE status WHEN 1 THEN due_at <= ` + sqliteNow +
		` ELSE takeovers > 0 AND due_at IS NOT NULL END RETURNING 0, ` + rowColumns(b)
}

// succeed stores n successes that expire equally late. Parameters: the time
// until then, ids, owner.
func (t *sqliteText) succeed(b storage.Box, n int) string {
	return `UPDATE ` + t.table(b) + ` SET status = 2, takeovers = 0, due_at = NULL, owner = NULL, updated_at = ` +
		sqliteNow + `, expires_at = ` + sqliteNow + ` + ? WHERE id IN (` + marks(n) +
		`) AND owner = ? AND expires_at IS NULL RETURNING id`
}

// remove deletes n rows that have succeeded. Parameters: ids, owner.
func (t *sqliteText) remove(b storage.Box, n int) string {
	return `DELETE FROM ` + t.table(b) + ` WHERE id IN (` + marks(n) +
		`) AND owner = ? AND expires_at IS NULL RETURNING id`
}

// settle stores n other outcomes. Parameters: the tuples of outcomeValues, ids,
// owner. The kinds are those of storage.OutcomeKind. The list of ids makes
// SQLite look the rows up by id; it would scan the table for the join.
func (t *sqliteText) settle(b storage.Box, n int) string {
	return `WITH o(id, kind, attempt, wait, callback, claimed, error) AS (VALUES ` +
		tuples(n, `(?,?,?,?,?,?,?)`) + `) UPDATE ` + t.table(b) + ` AS r SET updated_at = ` + sqliteNow +
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
		` ELSE expires_at IS NULL END RETURNING id`
}
