package gormstore

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/capbus/gocap/storage"
)

// sqliteNow is the host's clock in microseconds of Unix time, as SQLite knows
// it: to the millisecond. Every moment in our tables comes from this one
// expression. Within a statement it stands still.
const sqliteNow = `(CAST((julianday('now')-2440587.5)*86400000.0+0.5 AS INTEGER)*1000)`

// SQLite allows 32,766 parameters and 500 terms of a compound SELECT in a
// statement; the time to parse one grows with the square of its terms.
const (
	sqliteRows  = 512 // rows, or ids, in a statement
	sqliteTerms = 32  // lanes in a statement
)

// sqliteText is the SQL of SQLite: what differs between databases is in this
// type, and in its errors. It needs SQLite 3.35 or later.
type sqliteText struct {
	published, received, instances, migrated string // table names, quoted
}

func newSQLiteText(prefix string) *sqliteText {
	quoted := func(name string) string { return `"` + prefix + name + `"` }
	return &sqliteText{
		published: quoted("published"),
		received:  quoted("received"),
		instances: quoted("instances"),
		migrated:  quoted("migrations"),
	}
}

func (t *sqliteText) table(b storage.Box) string {
	if b == storage.Inbox {
		return t.received
	}
	return t.published
}

// savepoint guards an inbox transaction; its release shows whether SQLite has
// ended the transaction on its own account.
const (
	savepoint        = `SAVEPOINT cap_inbox`
	releaseSavepoint = `RELEASE SAVEPOINT cap_inbox`

	appendSavepoint        = `SAVEPOINT cap_append`
	releaseAppendSavepoint = `RELEASE SAVEPOINT cap_append`
	undoAppendSavepoint    = `ROLLBACK TO SAVEPOINT cap_append`
)

// lock makes a transaction the writer before it has read anything, also where
// it was not begun as IMMEDIATE: a transaction that reads first and writes
// later fails when another has written in between.
func (t *sqliteText) lock() string { return `DELETE FROM ` + t.instances + ` WHERE number < 0` }

// inTransaction fails inside a transaction, without harm to it, and succeeds
// outside of one. SQLite ends a transaction by itself when a statement in it is
// interrupted, and for some errors; what follows would then commit alone.
const inTransaction = `BEGIN`

// stillBegun tells from the answer to inTransaction whether there is one.
func stillBegun(err error) bool {
	code, ok := sqliteCode(err)
	return ok && code == sqliteGeneric
}

// Result codes of SQLite, https://www.sqlite.org/rescode.html; the low byte is
// the primary code.
const (
	sqliteGeneric    = 1
	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteTooBig     = 18
	sqliteConstraint = 19
	sqliteMismatch   = 20
)

func sqliteCode(err error) (int, bool) {
	var e interface{ Code() int }
	if !errors.As(err, &e) {
		return 0, false
	}
	return e.Code() & 0xff, true
}

// busy tells that another connection was in the way: try again.
func busy(err error) bool {
	code, ok := sqliteCode(err)
	return ok && (code == sqliteBusy || code == sqliteLocked)
}

// badData tells that the statement was refused for the values in it.
func badData(err error) bool {
	code, ok := sqliteCode(err)
	return ok && (code == sqliteTooBig || code == sqliteConstraint || code == sqliteMismatch)
}

// padded rounds a number of ids or lanes up, so that there are few texts of
// looks, and they stay prepared.
func padded(n, most int) int {
	return min(1<<bits.Len(uint(n-1)), most)
}

// marks returns n parameters for a list.
func marks(n int) string {
	return strings.Repeat("?,", n-1) + "?"
}

// tuples returns n times the given tuple.
func tuples(n int, tuple string) string {
	return strings.Repeat(tuple+",", n-1) + tuple
}

// Heartbeats.

func (t *sqliteText) rivals() string {
	return `SELECT transport, destination FROM ` + t.instances +
		` WHERE box = ? AND version = ? AND ended_at IS NULL AND beat_at + lease > ` + sqliteNow +
		` AND destination <> '' AND (transport <> ? OR destination <> ?) LIMIT 1`
}

func (t *sqliteText) join() string {
	return `INSERT INTO ` + t.instances +
		` (number, box, version, transport, destination, joined_at, beat_at, lease)` +
		` VALUES (?, ?, ?, ?, ?, ` + sqliteNow + `, ` + sqliteNow + `, ?)`
}

func (t *sqliteText) beat() string {
	return `UPDATE ` + t.instances + ` SET beat_at = ` + sqliteNow + ` WHERE number = ? AND ended_at IS NULL`
}

func (t *sqliteText) leave() string {
	return `UPDATE ` + t.instances + ` SET ended_at = ` + sqliteNow + ` WHERE number = ? AND ended_at IS NULL`
}

// running reads the heartbeats that have not ended, and which of them have run
// out by the database's clock.
func (t *sqliteText) running() string {
	return `SELECT number, beat_at, lease, beat_at + lease <= ` + sqliteNow +
		` FROM ` + t.instances + ` WHERE ended_at IS NULL`
}

// declareDead ends a heartbeat that still is as it was seen, or that has run
// out by the database's clock.
func (t *sqliteText) declareDead() string {
	return `UPDATE ` + t.instances + ` SET ended_at = ` + sqliteNow + `, died = 1` +
		` WHERE number = ? AND ended_at IS NULL AND (beat_at = ? OR beat_at + lease <= ` + sqliteNow + `)`
}

// endings reads which of the given instances have not ended, and which died;
// one whose heartbeat is gone is not among the rows.
func (t *sqliteText) endings(n int) string {
	return `SELECT number, ended_at IS NULL, died FROM ` + t.instances + ` WHERE number IN (` + marks(n) + `)`
}

func (t *sqliteText) forgetInstances() string {
	return `DELETE FROM ` + t.instances + ` WHERE ended_at <= ` + sqliteNow + ` - 86400000000`
}

// purge deletes rows by key that it finds by expiry.
func (t *sqliteText) purge(b storage.Box) string {
	return `DELETE FROM ` + t.table(b) + ` WHERE seq IN (SELECT seq FROM ` + t.table(b) +
		` WHERE version = ? AND due_at IS NULL AND expires_at <= ` + sqliteNow + ` ORDER BY expires_at` + limit + `)`
}

const sqliteEncoding = "UTF-8"

// check reads nothing from every table, by the columns that this release uses.
func (t *sqliteText) check() []string {
	return []string{
		`SELECT ` + rowColumns(storage.Outbox) + `, ordering_key, updated_at FROM ` + t.published + ` WHERE seq < 0`,
		`SELECT ` + rowColumns(storage.Inbox) + `, ordering_key, updated_at FROM ` + t.received + ` WHERE seq < 0`,
		`SELECT number, box, version, transport, destination, joined_at, beat_at, lease, ended_at, died FROM ` +
			t.instances + ` WHERE number < 0`,
	}
}

// encoding is that of texts in the database; they are read as bytes.
func (t *sqliteText) encoding() string { return `PRAGMA encoding` }

// Migrations.

func (t *sqliteText) makeMigrated() string {
	return `CREATE TABLE IF NOT EXISTS ` + t.migrated +
		` (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)`
}

func (t *sqliteText) lockMigrated() string { return `DELETE FROM ` + t.migrated + ` WHERE number < 0` }

func (t *sqliteText) hasMigrated() string {
	return `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE`
}

func (t *sqliteText) appliedMigrations() string { return `SELECT number FROM ` + t.migrated }

// recordMigration and forgetMigration are part of the texts of a step, which
// may be applied by hand.
func (t *sqliteText) recordMigration(number int, name string) string {
	return t.makeMigrated() + ";\n" + fmt.Sprintf(`INSERT INTO %s (number, name, applied_at) VALUES (%d, '%s', %s);`,
		t.migrated, number, name, sqliteNow) + "\n"
}

func (t *sqliteText) forgetMigration(number int) string {
	return fmt.Sprintf(`DELETE FROM %s WHERE number = %d;`, t.migrated, number) + "\n"
}
