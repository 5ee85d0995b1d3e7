package gormstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/capbus/gocap/storage"
)

// mysqlNow is the server's clock in microseconds of Unix time. No time zone of a
// session, and nothing that the driver is told, shifts it. Within a statement it
// stands still, and it is the same in all parts of one.
const mysqlNow = `TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))`

// mysql is the dialect of MySQL 8 and MariaDB 10.6, or later. Names are bytes in
// the tables, and are given as bytes, so that no character set of a connection
// changes one.
type mysql struct {
	published, received, instances, locks, migrated string // table names, quoted
	schema, prefix                                  string
	names                                           *strings.Replacer

	server    atomic.Pointer[mysqlServer] // nil: not asked yet
	foundRows atomic.Pointer[bool]        // nil: not tried yet; see countsExactly
}

func newMySQL(cfg Config) dialect {
	schema := ""
	if cfg.Schema != "" {
		schema = "`" + cfg.Schema + "`."
	}
	quoted := func(name string) string { return schema + "`" + cfg.prefix() + name + "`" }
	return &mysql{
		published: quoted("published"),
		received:  quoted("received"),
		instances: quoted("instances"),
		locks:     quoted("lock"),
		migrated:  quoted("migrations"),
		schema:    cfg.Schema,
		prefix:    cfg.prefix(),
		names:     strings.NewReplacer("{schema}", schema, "{prefix}", cfg.prefix()),
	}
}

func (d *mysql) name() string { return "mysql" }

func (d *mysql) table(b storage.Box) string {
	if b == storage.Inbox {
		return d.received
	}
	return d.published
}

// Errors of the server,
// https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html.
const (
	mysqlChangedSince      = 1020 // of snapshot isolation: the transaction is rolled back
	mysqlColumnThere       = 1060
	mysqlKeyThere          = 1061
	mysqlDuplicate         = 1062
	mysqlNotThere          = 1091 // the column or key that is to be dropped
	mysqlNoTable           = 1146
	mysqlLockWait          = 1205 // only the statement is rolled back, unless innodb_rollback_on_timeout
	mysqlLocksFull         = 1206 // the transaction is rolled back
	mysqlDeadlock          = 1213 // the transaction is rolled back
	mysqlNoSavepoint       = 1305
	mysqlDuplicateNamed    = 1586
	mysqlXATimeout         = 1613
	mysqlXADeadlock        = 1614
	mysqlOutOfRange        = 1690
	mysqlRolledBackInGroup = 3101 // by another member of a replication group
)

// mysqlError finds the server's answer in an error: its number and SQLSTATE. It
// goes by the shape of the driver's type, which has no method that tells the
// number: to import the driver would link it into every user's program.
func mysqlError(err error) (number uint64, state string, ok bool) {
	for err != nil {
		if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.Struct {
			n, s := v.Elem().FieldByName("Number"), v.Elem().FieldByName("SQLState")
			if n.Kind() == reflect.Uint16 && s.Kind() == reflect.Array && s.Type().Elem().Kind() == reflect.Uint8 {
				return n.Uint(), fmt.Sprintf("%s", s.Interface()), true
			}
		}
		if many, is := err.(interface{ Unwrap() []error }); is {
			for _, e := range many.Unwrap() {
				if number, state, ok = mysqlError(e); ok {
					return number, state, ok
				}
			}
			return 0, "", false
		}
		err = errors.Unwrap(err)
	}
	return 0, "", false
}

func (d *mysql) transient(err error) bool {
	switch number, _, _ := mysqlError(err); number {
	case mysqlChangedSince, mysqlLockWait, mysqlLocksFull, mysqlDeadlock, mysqlXATimeout, mysqlXADeadlock, mysqlRolledBackInGroup:
		return true
	}
	return false
}

// lengthError is a value that does not fit its column: a server in a lax sql_mode
// would cut it, and take two messages for one.
type lengthError struct {
	column      string
	bytes, most int
}

func (e *lengthError) Error() string {
	return fmt.Sprintf("%s has %d bytes, at most %d fit", e.column, e.bytes, e.most)
}

// badData: SQLSTATE classes 22 and 23, and texts in another encoding than said.
func (d *mysql) badData(err error) bool {
	if e := (*lengthError)(nil); errors.As(err, &e) {
		return true
	}
	const wrongEncoding, wrongValue = 1300, 1366
	number, state, ok := mysqlError(err)
	return ok && (strings.HasPrefix(state, "22") || strings.HasPrefix(state, "23") ||
		number == wrongEncoding || number == wrongValue)
}

// duplicate: a statement that fails for it is undone alone.
func (d *mysql) duplicate(err error) bool {
	number, _, _ := mysqlError(err)
	return number == mysqlDuplicate || number == mysqlDuplicateNamed
}

func (d *mysql) answered(err error) bool {
	_, _, ok := mysqlError(err)
	return ok
}

// ended: mysqlOutOfRange is what inTransaction makes of it.
func (d *mysql) ended(err error) bool {
	switch number, _, _ := mysqlError(err); number {
	case mysqlChangedSince, mysqlLocksFull, mysqlDeadlock, mysqlNoSavepoint, mysqlOutOfRange, mysqlXATimeout, mysqlXADeadlock,
		mysqlRolledBackInGroup:
		return true
	}
	return false
}

func (d *mysql) missing(err error) bool {
	number, _, _ := mysqlError(err)
	return number == mysqlNoTable
}

// options: REPEATABLE READ, the default, locks gaps between rows, so that
// inserts wait for looks, and would not see what others have committed meanwhile.
func (d *mysql) options() *sql.TxOptions { return &sql.TxOptions{Isolation: sql.LevelReadCommitted} }

func (d *mysql) maxTx(conns int) int { return spared(conns) }

func (d *mysql) alone() bool { return true }

// tells: it takes more than one statement to know what one has changed.
func (d *mysql) tells() bool { return false }

func (d *mysql) fragile() bool { return false }

// uncancelled: a statement that is interrupted costs the connection, so that
// nothing of its transaction can be committed any more.
func (d *mysql) uncancelled() bool { return false }

// prepares: preparing takes a round trip for each connection.
func (d *mysql) prepares() bool { return false }

func (d *mysql) lock() query    { return query{} }
func (d *mysql) guard() query   { return textOf("SAVEPOINT cap_inbox") }
func (d *mysql) release() query { return textOf("RELEASE SAVEPOINT cap_inbox") }

// probe asks the server, once, what inTransaction and maxBytes need to know,
// where a program publishes before it has done anything else with the store. It
// asks in the transaction: another connection might not be free.
func (d *mysql) probe(ctx context.Context, tx storage.Execer) error {
	if q, ok := tx.(querier); ok && d.server.Load() == nil {
		return d.ask(ctx, q)
	}
	return nil
}

// inTransaction is an expression of the given value that fails outside a
// transaction. The server ends a transaction by itself for a deadlock; a caller
// who goes on regardless would commit what follows piece by piece. Only MariaDB
// can tell.
func (d *mysql) inTransaction(value string) string {
	if s := d.server.Load(); s == nil || !s.tellsTransaction {
		return value
	}
	return "IF(@@in_transaction, " + value + ", ~0 + 1)"
}
