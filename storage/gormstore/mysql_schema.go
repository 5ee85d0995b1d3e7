package gormstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/capbus/gocap/storage"
)

func (d *mysql) check() []query {
	return []query{
		textOf("SELECT " + d.columns(storage.Outbox) + ", updated_at, size, free_owner, open_key, held FROM " +
			d.published + " WHERE seq < 0"),
		textOf("SELECT " + d.columns(storage.Inbox) + ", updated_at, size, free_owner, open_key, held FROM " +
			d.received + " WHERE seq < 0"),
		textOf("SELECT " + instanceColumns + " FROM " + d.instances + " WHERE number < 0"),
		textOf("SELECT " + lockColumns + " FROM " + d.locks + " WHERE name = ''"),
	}
}

// migrating holds a named lock of the server: no transaction could, because each
// statement that makes a table commits. The lock belongs to a connection, and is
// free when that is lost. A step that was cut short is made again from its
// beginning, so its statements do nothing where they have been carried out.
func (d *mysql) migrating(ctx context.Context, s *Store, f func(ctx context.Context, db conn) error) (err error) {
	c, err := d.dedicated(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	name, err := d.lockName(ctx, c)
	if err != nil {
		return err
	}
	if err := takeNamedLock(ctx, c, name); err != nil {
		return err
	}
	defer func() {
		// A lock that stays would keep all others out for as long as the pool
		// keeps the connection.
		free, cancel := context.WithTimeout(context.WithoutCancel(ctx), namedLockWait)
		defer cancel()
		if _, e := c.ExecContext(free, "DO RELEASE_LOCK(?)", name); e != nil {
			err = errors.Join(err, fmt.Errorf("release the lock: %w", e))
		}
	}()
	return f(ctx, &remade{c})
}

// remade is a connection on which a step is made again that was cut short: what
// it has added or dropped already is not an error. There is no IF NOT EXISTS for
// columns in MySQL.
type remade struct{ *sql.Conn }

// ExecContext is as that of *sql.Conn.
func (r *remade) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	res, err := r.Conn.ExecContext(ctx, query, args...)
	switch number, _, _ := mysqlError(err); number {
	case mysqlColumnThere, mysqlKeyThere, mysqlNotThere:
		return res, nil
	}
	return res, err
}

// dedicated is a connection of the pool that writes, where it shows.
func (d *mysql) dedicated(ctx context.Context, s *Store) (*sql.Conn, error) {
	if db, ok := s.writer.(*sql.DB); ok {
		return db.Conn(ctx)
	}
	return s.reader.Conn(ctx)
}

// lockName is one of at most 64 characters for these tables; names of locks are
// the same in all databases of a server.
func (d *mysql) lockName(ctx context.Context, q rowQuerier) (string, error) {
	schema := d.schema
	if schema == "" {
		var current sql.NullString
		if err := q.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&current); err != nil {
			return "", err
		}
		if schema = current.String; schema == "" {
			return "", errors.New("no database is chosen: name one in the DSN, or set Config.Schema")
		}
	}
	sum := sha256.Sum256([]byte(strings.ToLower(schema + "." + d.prefix)))
	return "gocap_migrate_" + hex.EncodeToString(sum[:16]), nil
}

// namedLockWait is how long the server waits for a lock at a time.
const namedLockWait = 5 * time.Second

// takeNamedLock waits for as long as the context lets it.
func takeNamedLock(ctx context.Context, q rowQuerier, name string) error {
	for {
		var got sql.NullInt64
		err := q.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, int(namedLockWait/time.Second)).Scan(&got)
		switch {
		case err != nil:
			return fmt.Errorf("wait for the instance that applies the steps: %w", err)
		case !got.Valid:
			return errors.New("GET_LOCK: the server could not take the lock")
		case got.Int64 == 1:
			return nil
		}
	}
}

func (d *mysql) makeMigrated() string {
	return "CREATE TABLE IF NOT EXISTS " + d.migrated + " (number INT NOT NULL, name VARBINARY(255) NOT NULL," +
		" oldest INT NOT NULL, applied_at BIGINT NOT NULL, PRIMARY KEY (number)) ENGINE=InnoDB" +
		" DEFAULT CHARACTER SET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC"
}

// hasMigrated: the names of tables are compared without case by the server's
// catalogue, but not by the server itself, unless lower_case_table_names says so.
func (d *mysql) hasMigrated() query {
	name := d.prefix + "migrations"
	schema, args := "DATABASE()", []any{name, []byte(name)}
	if d.schema != "" {
		schema, args = "?", []any{d.schema, name, []byte(name)}
	}
	return query{"SELECT count(*) FROM information_schema.tables WHERE table_schema = " + schema +
		" AND table_name = ? AND (@@lower_case_table_names > 0 OR CAST(table_name AS BINARY) = ?)", args}
}

func (d *mysql) applied() query { return textOf("SELECT number, name, oldest FROM " + d.migrated) }

func (d *mysql) recordMigration(m Migration) string {
	return d.makeMigrated() + ";\n" + fmt.Sprintf("INSERT INTO %s (number, name, oldest, applied_at) VALUES (%d, '%s', %d, %s)"+
		" ON DUPLICATE KEY UPDATE oldest = oldest;\n", d.migrated, m.Number, m.Name, m.Oldest, mysqlNow)
}

func (d *mysql) forgetMigration(m Migration) string {
	return fmt.Sprintf("DELETE FROM %s WHERE number = %d;\n", d.migrated, m.Number)
}

func (d *mysql) fill(text string) string { return d.names.Replace(text) }
