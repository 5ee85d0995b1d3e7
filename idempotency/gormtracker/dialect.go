package gormtracker

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// dialect is the SQL of one database. Keys are kept as their SHA-256, in a binary
// column: they have any length, and no collation takes two for one.
type dialect struct {
	create []string // statements that make the table
	check  string   // an error if the table cannot be used

	// take inserts a key. It waits for a transaction that has inserted it and not
	// ended, and changes one row if the key is new. It never fails because the key
	// is there: in PostgreSQL that would end the caller's transaction.
	take string
	seen string
	// purge deletes up to a number of keys that are older than an age.
	purge string

	args func(hash []byte) []any   // of take
	age  func(d time.Duration) any // for purge
	// uncancelled: a statement that is interrupted makes the database roll the
	// transaction back behind the back of database/sql.
	uncancelled bool
}

func justHash(hash []byte) []any { return []any{hash} }

// microseconds is the moment by the clock of MySQL and MariaDB, in UTC whatever
// the session says.
const microseconds = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

func newDialect(name string, c Config) (*dialect, error) {
	table := cmp.Or(c.TablePrefix, DefaultPrefix) + "processed"
	quote := `"`
	if name == "mysql" {
		quote = "`"
	}
	where := quote + table + quote
	if c.Schema != "" {
		where = quote + c.Schema + quote + "." + where
	}
	index := quote + table + "_added" + quote
	fill := strings.NewReplacer("{table}", where, "{index}", index, "{now}", microseconds).Replace
	var d *dialect
	switch name {
	case "postgres":
		d = postgres()
	case "mysql":
		d = mysql()
	case "sqlite":
		if c.Schema != "" {
			return nil, errors.New("gormtracker: SQLite has no schemas; Config.Schema must be empty")
		}
		d = sqlite()
	default:
		return nil, fmt.Errorf("gormtracker: there is no dialect %q; there are sqlite, postgres and mysql", name)
	}
	for _, text := range []*string{&d.check, &d.take, &d.seen, &d.purge} {
		*text = fill(*text)
	}
	for i := range d.create {
		d.create[i] = fill(d.create[i])
	}
	return d, nil
}

func postgres() *dialect {
	return &dialect{
		create: []string{
			"CREATE TABLE IF NOT EXISTS {table} (\n\tkey_hash bytea PRIMARY KEY,\n\tadded_at timestamptz NOT NULL\n)",
			"CREATE INDEX IF NOT EXISTS {index} ON {table} (added_at)",
		},
		check: "SELECT key_hash, added_at FROM {table} LIMIT 0",
		take:  "INSERT INTO {table} (key_hash, added_at) VALUES ($1, clock_timestamp()) ON CONFLICT (key_hash) DO NOTHING",
		seen:  "SELECT 1 FROM {table} WHERE key_hash = $1",
		purge: "DELETE FROM {table} WHERE key_hash IN (SELECT key_hash FROM {table} " +
			"WHERE added_at < statement_timestamp() - make_interval(secs => $1) " +
			"ORDER BY added_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
		args: justHash,
		age:  func(d time.Duration) any { return d.Seconds() },
	}
}

// mysql counts repeats, because that tells a new row (1 changed) from an old one
// (2) whatever the DSN says about found rows; and unlike INSERT IGNORE it ignores
// no other error.
func mysql() *dialect {
	return &dialect{
		create: []string{
			"CREATE TABLE IF NOT EXISTS {table} (\n\tkey_hash BINARY(32) NOT NULL PRIMARY KEY,\n\tadded_at BIGINT NOT NULL,\n" +
				"\trepeats BIGINT NOT NULL DEFAULT 0,\n\tKEY {index} (added_at)\n) ENGINE=InnoDB",
		},
		check: "SELECT key_hash, added_at, repeats FROM {table} LIMIT 0",
		take:  "INSERT INTO {table} (key_hash, added_at) VALUES (?, {now}) ON DUPLICATE KEY UPDATE repeats = repeats + 1",
		seen:  "SELECT 1 FROM {table} WHERE key_hash = ?",
		purge: "DELETE FROM {table} WHERE added_at < {now} - ? ORDER BY added_at LIMIT ?",
		args:  justHash,
		age:   func(d time.Duration) any { return d.Microseconds() },
	}
}

func sqlite() *dialect {
	return &dialect{
		create: []string{
			"CREATE TABLE IF NOT EXISTS {table} (\n\tkey_hash BLOB NOT NULL PRIMARY KEY,\n\tadded_at INTEGER NOT NULL\n)",
			"CREATE INDEX IF NOT EXISTS {index} ON {table} (added_at)",
		},
		check:       "SELECT key_hash, added_at FROM {table} LIMIT 0",
		take:        "INSERT INTO {table} (key_hash, added_at) VALUES (?, ?) ON CONFLICT (key_hash) DO NOTHING",
		seen:        "SELECT 1 FROM {table} WHERE key_hash = ?",
		purge:       "DELETE FROM {table} WHERE key_hash IN (SELECT key_hash FROM {table} WHERE added_at < ? ORDER BY added_at LIMIT ?)",
		args:        func(hash []byte) []any { return []any{hash, time.Now().UnixMicro()} },
		age:         func(d time.Duration) any { return time.Now().Add(-d).UnixMicro() },
		uncancelled: true,
	}
}

// isContended finds in the error of an insert that others want the same key: a
// lock was waited for too long, or by several that wait for each other, as after
// a rollback in MySQL. SQLSTATEs 55P03, 40P01 and 40001 of PostgreSQL, 1205 and
// 1213 of MySQL and MariaDB. It goes by the shape of MySQL's error, which has no
// method that tells the number, so that no driver is linked.
func isContended(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return slices.Contains([]string{"55P03", "40P01", "40001"}, state.SQLState())
	}
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.ValueOf(err)
		if v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.Struct {
			if n := v.Elem().FieldByName("Number"); n.Kind() == reflect.Uint16 {
				return n.Uint() == 1205 || n.Uint() == 1213
			}
		}
	}
	return false
}
