package gormstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/capbus/gocap/storage"
)

// Clocks of PostgreSQL. now() stands still in a transaction, however long it is,
// so it is never used.
const (
	pgNow   = `statement_timestamp()` // in conditions
	pgClock = `clock_timestamp()`     // in values
)

// pgMicros is a moment in microseconds since 1970, or an interval in
// microseconds.
func pgMicros(expr string) string { return `(extract(epoch FROM ` + expr + `) * 1000000)::bigint` }

// pgSpan is a number of microseconds as an interval.
func pgSpan(expr string) string { return `(` + expr + `)::bigint * interval '1 microsecond'` }

// pgArgs numbers the parameters of a text. Every parameter is cast where it
// stands, so that the text means the same in every mode of the driver: prepared,
// described or simple.
type pgArgs struct{ args []any }

func (a *pgArgs) add(v any, typ string) string {
	a.args = append(a.args, v)
	return `$` + strconv.Itoa(len(a.args)) + `::` + typ
}

// postgres is the dialect of PostgreSQL 13 or later, reached through pgx.
type postgres struct {
	published, received, instances, locks, migrated string // table names, quoted
	schema, prefix                                  string
	unprepared, inTx                                any
}

func newPostgres(cfg Config) (dialect, error) {
	d := &postgres{prefix: cfg.prefix(), unprepared: cfg.Unprepared, inTx: cfg.InTx}
	if cfg.Schema != "" {
		d.schema = `"` + cfg.Schema + `".`
	}
	quoted := func(name string) string { return d.schema + `"` + d.prefix + name + `"` }
	d.published, d.received = quoted("published"), quoted("received")
	d.instances, d.locks, d.migrated = quoted("instances"), quoted("lock"), quoted("migrations")
	return d, nil
}

func (d *postgres) name() string { return "postgres" }

func (d *postgres) table(b storage.Box) string {
	if b == storage.Inbox {
		return d.received
	}
	return d.published
}

// own is a statement of the store's own. Its plan should be made for the size
// that the tables have now.
func (d *postgres) own(text string, a pgArgs) query {
	if d.unprepared != nil {
		return query{text, append([]any{d.unprepared}, a.args...)}
	}
	return query{text, a.args}
}

// settles is as own, of a statement that settles; in a handler's transaction it
// must not be run outside of it.
func (d *postgres) settles(s settling, text string, a pgArgs) query {
	q := d.own(text, a)
	if s.inTx && d.inTx != nil {
		q.args = append([]any{d.inTx}, q.args...)
	}
	return q
}

// Classes and codes of SQLSTATE,
// https://www.postgresql.org/docs/current/errcodes-appendix.html.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return ""
	}
	return e.SQLState()
}

func (d *postgres) transient(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01", "55P03": // serialization failure, deadlock, lock not available
		return true
	}
	return false
}

func (d *postgres) badData(err error) bool {
	switch st := sqlState(err); {
	case strings.HasPrefix(st, "22"), strings.HasPrefix(st, "23"), st == "54000": // data, integrity, index row too large
		return true
	}
	return false
}

// duplicate: the inserts skip what is there.
func (d *postgres) duplicate(error) bool { return false }

func (d *postgres) answered(err error) bool { return sqlState(err) != "" }

func (d *postgres) ended(err error) bool {
	switch sqlState(err) {
	case "25P02", "25P01", "25P03": // failed transaction, none, idle for too long
		return true
	}
	return false
}

// options: the default of the database may be another level.
func (d *postgres) options() *sql.TxOptions { return &sql.TxOptions{Isolation: sql.LevelReadCommitted} }

func (d *postgres) maxTx(conns int) int { return spared(conns) }

// spared leaves two of the connections to the engines.
func spared(conns int) int {
	if conns <= 0 {
		return 0
	}
	return max(conns-2, 1)
}

func (d *postgres) alone() bool       { return true }
func (d *postgres) tells() bool       { return true }
func (d *postgres) fragile() bool     { return true }
func (d *postgres) uncancelled() bool { return false }

// prepares: the driver does.
func (d *postgres) prepares() bool { return false }

// maxBytes is far below what a message of the protocol, or a value, can hold.
func (d *postgres) maxBytes() int { return 256 << 20 }

func (d *postgres) sizeHint() string { return "a value has at most 1 GB, which is never near" }

func (d *postgres) lock() query { return query{} }

// guard: after an error a transaction does nothing more, and says so.
func (d *postgres) guard() query { return query{} }

// release is an error outside of a transaction: a handler may have sent a COMMIT
// by itself. Inside it takes the lock that the next statement takes anyway. A
// savepoint would tell as well, but take two numbers of transactions for each.
func (d *postgres) release() query {
	if d.inTx != nil {
		return query{}
	}
	return textOf(`LOCK TABLE ` + d.received + ` IN ROW EXCLUSIVE MODE`)
}

func (d *postgres) probe(context.Context, storage.Execer) error { return nil }

// Heartbeats.

// lockJoin lets one instance join at a time.
func (d *postgres) lockJoin() query { return d.advisory("join") }

// advisory is a lock until the end of the transaction. Its key has the prefix of
// the tables in it, but not their schema, which one instance may name and another
// leave to its search_path.
func (d *postgres) advisory(what string) query {
	h := fnv.New64a()
	_, _ = h.Write([]byte("gocap " + what + " " + d.prefix))
	return textOf(`SELECT pg_advisory_xact_lock(` + strconv.FormatInt(int64(h.Sum64()), 10) + `)`) //nolint:gosec // any bits do
}

func (d *postgres) rivals(in storage.Instance) query {
	var a pgArgs
	return d.own(`SELECT transport, destination FROM `+d.instances+` WHERE box = `+a.add(in.Box.String(), "text")+
		` AND version = `+a.add(in.Version, "text")+` AND ended_at IS NULL AND beat_at + `+pgSpan("lease")+` > `+pgNow+
		` AND destination <> '' AND (transport <> `+a.add(in.Transport, "text")+
		` OR destination <> `+a.add(in.Destination, "text")+`) LIMIT 1`, a)
}

func (d *postgres) join(number int64, in storage.Instance) query {
	var a pgArgs
	return d.own(`INSERT INTO `+d.instances+` (number, box, version, transport, destination, joined_at, beat_at, lease) VALUES (`+
		a.add(number, "bigint")+`, `+a.add(in.Box.String(), "text")+`, `+a.add(in.Version, "text")+`, `+
		a.add(in.Transport, "text")+`, `+a.add(in.Destination, "text")+`, `+pgClock+`, `+pgClock+`, `+
		a.add(microsUp(in.Lease), "bigint")+`)`, a)
}

func (d *postgres) beat(number int64) query {
	var a pgArgs
	return d.own(`UPDATE `+d.instances+` SET beat_at = `+pgClock+` WHERE number = `+a.add(number, "bigint")+
		` AND ended_at IS NULL`, a)
}

func (d *postgres) leave(number int64) query {
	var a pgArgs
	return d.own(`UPDATE `+d.instances+` SET ended_at = `+pgClock+` WHERE number = `+a.add(number, "bigint")+
		` AND ended_at IS NULL`, a)
}

func (d *postgres) running() query {
	return d.own(`SELECT number, `+pgMicros("beat_at")+`, lease, beat_at + `+pgSpan("lease")+` <= `+pgNow+
		` FROM `+d.instances+` WHERE ended_at IS NULL`, pgArgs{})
}

func (d *postgres) declareDead(b heartbeat) query {
	var a pgArgs
	return d.own(`UPDATE `+d.instances+` SET ended_at = `+pgClock+`, died = true WHERE number = `+a.add(b.number, "bigint")+
		` AND ended_at IS NULL AND (`+pgMicros("beat_at")+` = `+a.add(b.beat, "bigint")+
		` OR beat_at + `+pgSpan("lease")+` <= `+pgNow+`)`, a)
}

func (d *postgres) endings(numbers []int64) query {
	var a pgArgs
	return d.own(`SELECT number, ended_at IS NULL, died FROM `+d.instances+
		` WHERE number = ANY(`+a.add(pgNumbers(numbers), "bigint[]")+`)`, a)
}

func (d *postgres) forgetInstances() query {
	return d.own(`DELETE FROM `+d.instances+` WHERE ended_at <= `+pgNow+` - interval '1 day'`, pgArgs{})
}

func (d *postgres) others(b storage.Box, version string, number int64) query {
	var a pgArgs
	return d.own(`SELECT number FROM `+d.instances+` WHERE ended_at IS NULL AND box = `+a.add(b.String(), "text")+
		` AND version = `+a.add(version, "text")+` AND number <> `+a.add(number, "bigint"), a)
}

func (d *postgres) lockStates(names []string) query {
	var a pgArgs
	return d.own(`SELECT l.name, l.holder, `+pgMicros("held_until - "+pgNow)+` FROM `+d.locks+` AS l JOIN `+a.names(names)+
		` ON l.name = n.name`, a)
}

func (d *postgres) acquire(names []string, holder, ttl int64) query {
	var a pgArgs
	until := pgClock + ` + ` + pgSpan(a.add(ttl, "bigint"))
	return d.own(`INSERT INTO `+d.locks+` AS l (`+lockColumns+`) SELECT n.name, `+a.add(holder, "bigint")+`, `+until+
		` FROM `+a.names(names)+` ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until`+
		` WHERE l.holder = excluded.holder OR l.held_until <= `+pgClock, a)
}

func (d *postgres) unlock(holder int64) query {
	var a pgArgs
	return d.own(`DELETE FROM `+d.locks+` WHERE holder = `+a.add(holder, "bigint"), a)
}

// names is a list of lock names as a table.
func (a *pgArgs) names(list []string) string {
	parts := make([]string, len(list))
	for i, name := range list {
		parts[i] = hex.EncodeToString([]byte(name))
	}
	return `(SELECT decode(unnest(` + a.add(`{`+strings.Join(parts, ",")+`}`, "text[]") + `), 'hex') AS name) AS n`
}

// pgIDs is a list of ids as the text of an array, which every driver sends.
func pgIDs(ids []storage.ID) string {
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = id.String()
	}
	return `{` + strings.Join(parts, ",") + `}`
}

func pgNumbers(list []int64) string {
	parts := make([]string, len(list))
	for i, n := range list {
		parts[i] = strconv.FormatInt(n, 10)
	}
	return `{` + strings.Join(parts, ",") + `}`
}

// Tables.

// pgOldest is the oldest release in the form of server_version_num.
const pgOldest = 130000

// prepare refuses a server that is too old, and an encoding, of the database or
// of the connection, that has not all texts or changes them on their way.
func (d *postgres) prepare(ctx context.Context, db rowQuerier) error {
	var version int
	var encoding, client, output string
	err := db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),`+
		` current_setting('client_encoding'), current_setting('bytea_output')`).Scan(&version, &encoding, &client, &output)
	switch {
	case err != nil:
		return err
	case version < pgOldest:
		return fmt.Errorf("the server is PostgreSQL %d; 13 or later is needed", version/10000)
	case encoding != "UTF8":
		return fmt.Errorf("the encoding of the database is %s; it must be UTF8", encoding)
	case client != "UTF8":
		return fmt.Errorf("the encoding of the connection, client_encoding, is %s; it must be UTF8", client)
	case output != "hex" && d.unprepared != nil:
		// What is not prepared is answered as text, of which pgx reads this form.
		return fmt.Errorf("bytea_output is %s; it must be hex, which a parameter of the DSN, bytea_output=hex, can say", output)
	}
	return nil
}

// check: with LIMIT 0 nothing is read, whatever the planner thinks of a table.
func (d *postgres) check() []query {
	return []query{
		textOf(`SELECT ` + pgColumns(storage.Outbox) + `, updated_at FROM ` + d.published + ` LIMIT 0`),
		textOf(`SELECT ` + pgColumns(storage.Inbox) + `, updated_at FROM ` + d.received + ` LIMIT 0`),
		textOf(`SELECT ` + instanceColumns + ` FROM ` + d.instances + ` LIMIT 0`),
		textOf(`SELECT ` + lockColumns + ` FROM ` + d.locks + ` LIMIT 0`),
	}
}

func (d *postgres) migrating(ctx context.Context, s *Store, f func(ctx context.Context, db conn) error) error {
	return s.inTx(ctx, func(ctx context.Context, tx conn) error {
		if _, err := d.advisory("migrate").exec(ctx, tx); err != nil {
			return err
		}
		return f(ctx, tx)
	})
}

func (d *postgres) makeMigrated() string {
	return `CREATE TABLE IF NOT EXISTS ` + d.migrated +
		` (number integer PRIMARY KEY, name text NOT NULL, oldest integer NOT NULL, applied_at timestamptz NOT NULL)`
}

// hasMigrated names a table, and so takes a lock on it: with to_regclass alone,
// a session that waited for another's migration goes by what it knew before.
func (d *postgres) hasMigrated() query {
	return textOf(`SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass($1::text)`, d.migrated)
}

func (d *postgres) applied() query { return textOf(`SELECT number, name, oldest FROM ` + d.migrated) }

func (d *postgres) recordMigration(m Migration) string {
	return d.makeMigrated() + ";\n" + fmt.Sprintf(`INSERT INTO %s (number, name, oldest, applied_at) VALUES (%d, '%s', %d, %s);`,
		d.migrated, m.Number, m.Name, m.Oldest, pgClock) + "\n"
}

func (d *postgres) forgetMigration(m Migration) string {
	return fmt.Sprintf(`DELETE FROM %s WHERE number = %d;`, d.migrated, m.Number) + "\n"
}

func (d *postgres) fill(text string) string {
	return strings.NewReplacer("{prefix}", d.prefix, "{schema}", d.schema).Replace(text)
}
