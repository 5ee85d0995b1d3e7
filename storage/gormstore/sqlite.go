package gormstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/capbus/gocap/storage"
)

// sqliteNow is the host's clock in microseconds of Unix time, as SQLite knows
// it: to the millisecond. Every moment in our tables comes from this one
// expression. Within a statement it stands still.
const sqliteNow = `(CAST((julianday('now')-2440587.5)*86400000.0+0.5 AS INTEGER)*1000)`

// sqlite is the dialect of SQLite 3.35 or later. It allows 32,766 parameters
// and 500 terms of a compound SELECT in a statement; the time to parse one grows
// with the square of its terms.
type sqlite struct {
	published, received, instances, locks, migrated string // table names, quoted
	names                                           *strings.Replacer
}

func newSQLite(cfg Config) (dialect, error) {
	if cfg.Schema != "" {
		return nil, errors.New("gormstore: Config.Schema: SQLite has no schemas; leave it empty")
	}
	quoted := func(name string) string { return `"` + cfg.prefix() + name + `"` }
	return &sqlite{
		published: quoted("published"),
		received:  quoted("received"),
		instances: quoted("instances"),
		locks:     quoted("lock"),
		migrated:  quoted("migrations"),
		names:     strings.NewReplacer("{prefix}", cfg.prefix()),
	}, nil
}

func (d *sqlite) name() string { return "sqlite" }

func (d *sqlite) table(b storage.Box) string {
	if b == storage.Inbox {
		return d.received
	}
	return d.published
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

func (d *sqlite) transient(err error) bool {
	code, ok := sqliteCode(err)
	return ok && (code == sqliteBusy || code == sqliteLocked)
}

func (d *sqlite) badData(err error) bool {
	code, ok := sqliteCode(err)
	return ok && (code == sqliteTooBig || code == sqliteConstraint || code == sqliteMismatch)
}

// duplicate: the inserts skip what is there.
func (d *sqlite) duplicate(error) bool { return false }

func (d *sqlite) answered(err error) bool {
	_, ok := sqliteCode(err)
	return ok
}

// ended: a statement that needs a transaction, such as ROLLBACK or RELEASE, says
// so with the generic code.
func (d *sqlite) ended(err error) bool {
	code, ok := sqliteCode(err)
	return ok && code == sqliteGeneric
}

// missing: there is no code of its own for it.
func (d *sqlite) missing(err error) bool {
	code, ok := sqliteCode(err)
	return ok && code == sqliteGeneric && strings.Contains(err.Error(), "no such table: ")
}

func (d *sqlite) options() *sql.TxOptions { return nil }

// maxTx: SQLite has one writer.
func (d *sqlite) maxTx(int) int { return 1 }

// alone: a transaction that begins as the writer waits its turn.
func (d *sqlite) alone() bool { return false }

func (d *sqlite) tells() bool   { return true }
func (d *sqlite) fragile() bool { return false }

// uncancelled: SQLite ends the whole transaction when a statement in it is
// interrupted, and ours take microseconds.
func (d *sqlite) uncancelled() bool { return true }

// prepares: SQLite takes longer to parse and plan a look than to carry it out.
func (d *sqlite) prepares() bool { return true }

func (d *sqlite) maxBytes() int { return 0 }

func (d *sqlite) sizeHint() string { return "" }

// lock makes a transaction the writer before it has read anything, also where
// it was not begun as IMMEDIATE: a transaction that reads first and writes
// later fails when another has written in between.
func (d *sqlite) lock() query { return textOf(`DELETE FROM ` + d.instances + ` WHERE number < 0`) }

func (d *sqlite) guard() query   { return textOf(`SAVEPOINT cap_inbox`) }
func (d *sqlite) release() query { return textOf(`RELEASE SAVEPOINT cap_inbox`) }

// probe tries BEGIN, which fails inside a transaction, without harm to it, and
// succeeds outside of one. SQLite ends a transaction by itself when a statement
// in it is interrupted, and for some errors; what follows would then commit
// alone.
func (d *sqlite) probe(ctx context.Context, tx storage.Execer) error {
	_, err := tx.ExecContext(ctx, `BEGIN`)
	if err == nil {
		_, err = tx.ExecContext(ctx, `ROLLBACK`)
		return errors.Join(fmt.Errorf("%w: the database has rolled it back", storage.ErrTxDone), err)
	}
	if isTxDone(err) || d.answered(err) && !d.ended(err) {
		return err
	}
	return nil
}

// Heartbeats.

// lockJoin: lock does.
func (d *sqlite) lockJoin() query { return d.lock() }

func (d *sqlite) rivals(in storage.Instance) query {
	return textOf(`SELECT transport, destination FROM `+d.instances+
		` WHERE box = ? AND version = ? AND ended_at IS NULL AND beat_at + lease > `+sqliteNow+
		` AND destination <> '' AND (transport <> ? OR destination <> ?) LIMIT 1`,
		in.Box.String(), in.Version, in.Transport, in.Destination)
}

func (d *sqlite) join(number int64, in storage.Instance) query {
	return textOf(`INSERT INTO `+d.instances+
		` (number, box, version, transport, destination, joined_at, beat_at, lease)`+
		` VALUES (?, ?, ?, ?, ?, `+sqliteNow+`, `+sqliteNow+`, ?)`,
		number, in.Box.String(), in.Version, in.Transport, in.Destination, microsUp(in.Lease))
}

func (d *sqlite) beat(number int64) query {
	return textOf(`UPDATE `+d.instances+` SET beat_at = `+sqliteNow+` WHERE number = ? AND ended_at IS NULL`, number)
}

func (d *sqlite) leave(number int64) query {
	return textOf(`UPDATE `+d.instances+` SET ended_at = `+sqliteNow+` WHERE number = ? AND ended_at IS NULL`, number)
}

func (d *sqlite) running() query {
	return textOf(`SELECT number, beat_at, lease, beat_at + lease <= ` + sqliteNow +
		` FROM ` + d.instances + ` WHERE ended_at IS NULL`)
}

func (d *sqlite) declareDead(b heartbeat) query {
	return textOf(`UPDATE `+d.instances+` SET ended_at = `+sqliteNow+`, died = 1`+
		` WHERE number = ? AND ended_at IS NULL AND (beat_at = ? OR beat_at + lease <= `+sqliteNow+`)`, b.number, b.beat)
}

func (d *sqlite) endings(numbers []int64) query {
	return textOf(`SELECT number, ended_at IS NULL, died FROM `+d.instances+
		` WHERE number IN (`+marks(len(numbers))+`)`, anys(numbers)...)
}

func (d *sqlite) forgetInstances() query {
	return textOf(`DELETE FROM ` + d.instances + ` WHERE ended_at <= ` + sqliteNow + ` - 86400000000`)
}

func (d *sqlite) others(b storage.Box, version string, number int64) query {
	return textOf(`SELECT number FROM `+d.instances+
		` WHERE ended_at IS NULL AND box = ? AND version = ? AND number <> ?`, b.String(), version, number)
}

func (d *sqlite) lockStates(names []string) query {
	return textOf(`SELECT CAST(name AS BLOB), holder, held_until - `+sqliteNow+` FROM `+d.locks+
		` WHERE name IN (`+marks(len(names))+`)`, anys(names)...)
}

func (d *sqlite) acquire(names []string, holder, ttl int64) query {
	var args []any
	for _, n := range names {
		args = append(args, n, holder, ttl)
	}
	return textOf(`WITH v(name, holder, ttl) AS (VALUES `+tuples(len(names), `(?,?,?)`)+`) INSERT INTO `+d.locks+
		` (`+lockColumns+`) SELECT name, holder, `+sqliteNow+` + ttl FROM v WHERE true ON CONFLICT (name) DO UPDATE`+
		` SET holder = excluded.holder, held_until = excluded.held_until`+
		` WHERE holder = excluded.holder OR held_until <= `+sqliteNow, args...)
}

func (d *sqlite) unlock(holder int64) query {
	return textOf(`DELETE FROM `+d.locks+` WHERE holder = ?`, holder)
}

// Tables.

const sqliteEncoding = "UTF-8"

// prepare refuses a database whose texts are not the bytes that we wrote.
func (d *sqlite) prepare(ctx context.Context, db rowQuerier) error {
	var encoding string
	if err := db.QueryRowContext(ctx, `PRAGMA encoding`).Scan(&encoding); err != nil {
		return err
	}
	if encoding != sqliteEncoding {
		return fmt.Errorf("the encoding of the database is %s; it must be %s", encoding, sqliteEncoding)
	}
	return nil
}

func (d *sqlite) check() []query {
	return []query{
		textOf(`SELECT ` + rowColumns(storage.Outbox) + `, updated_at FROM ` + d.published + ` WHERE seq < 0`),
		textOf(`SELECT ` + rowColumns(storage.Inbox) + `, updated_at FROM ` + d.received + ` WHERE seq < 0`),
		textOf(`SELECT ` + instanceColumns + ` FROM ` + d.instances + ` WHERE number < 0`),
		textOf(`SELECT ` + lockColumns + ` FROM ` + d.locks + ` WHERE holder < 0`),
	}
}

// Columns of the small tables, the same in every database.
const (
	instanceColumns = `number, box, version, transport, destination, joined_at, beat_at, lease, ended_at, died`
	lockColumns     = `name, holder, held_until`
)

func (d *sqlite) migrating(ctx context.Context, s *Store, f func(ctx context.Context, db conn) error) error {
	return s.inTx(ctx, func(ctx context.Context, tx conn) error {
		for _, q := range []string{d.makeMigrated(), `DELETE FROM ` + d.migrated + ` WHERE number < 0`} {
			if _, err := tx.ExecContext(ctx, q); err != nil {
				return err
			}
		}
		return f(ctx, tx)
	})
}

func (d *sqlite) makeMigrated() string {
	return `CREATE TABLE IF NOT EXISTS ` + d.migrated +
		` (number INTEGER PRIMARY KEY, name TEXT NOT NULL, oldest INTEGER NOT NULL, applied_at INTEGER NOT NULL)`
}

func (d *sqlite) hasMigrated() query {
	return textOf(`SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE`, strings.Trim(d.migrated, `"`))
}

func (d *sqlite) applied() query { return textOf(`SELECT number, name, oldest FROM ` + d.migrated) }

func (d *sqlite) recordMigration(m Migration) string {
	return d.makeMigrated() + ";\n" + fmt.Sprintf(`INSERT INTO %s (number, name, oldest, applied_at) VALUES (%d, '%s', %d, %s);`,
		d.migrated, m.Number, m.Name, m.Oldest, sqliteNow) + "\n"
}

func (d *sqlite) forgetMigration(m Migration) string {
	return fmt.Sprintf(`DELETE FROM %s WHERE number = %d;`, d.migrated, m.Number) + "\n"
}

func (d *sqlite) fill(text string) string { return d.names.Replace(text) }

// marks returns n parameters for a list.
func marks(n int) string {
	return strings.Repeat("?,", n-1) + "?"
}

func anys[T any](list []T) []any {
	args := make([]any, len(list), len(list)+4)
	for i, v := range list {
		args[i] = v
	}
	return args
}
