// Package gormtracker is an idempotency.Tracker in a table of a SQL database that
// the application reaches through gorm: SQLite, PostgreSQL, MariaDB and MySQL
// (tested with SQLite 3.54, PostgreSQL 15 and MariaDB 10.11; not with MySQL yet).
// It imports no driver.
//
// The key is inserted in a transaction, and what is written in that transaction
// is committed with it or not at all: exactly once. Effects elsewhere are at
// least once, because the process may die before the commit.
package gormtracker

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/idempotency"
)

// Tracker keeps keys in a table: Migrate makes it. Its methods may be called
// concurrently.
//
// A key is remembered until Purge deletes it. Call Purge now and then, such as
// once an hour; nothing does so by itself.
type Tracker struct {
	db   *gorm.DB
	cfg  Config
	d    *dialect
	pool gorm.ConnPool
	tx   *gorm.DB // of In
	err  error    // why it cannot be used
}

var _ idempotency.Tracker = (*Tracker)(nil)

// New returns a Tracker on the table that db can reach. It does not connect, and
// does not fail: Validate, and every other method, reports what is wrong with db
// or cfg.
func New(db *gorm.DB, cfg Config) *Tracker {
	t := &Tracker{db: db, cfg: cfg}
	if cfg.Retention == 0 {
		t.cfg.Retention = DefaultRetention
	}
	t.err = errors.Join(cfg.Validate(), t.usePool())
	return t
}

func (t *Tracker) usePool() (err error) {
	if err := checkDB(t.db); err != nil {
		return err
	}
	if t.d, err = newDialect(t.db.Name(), t.cfg); err != nil {
		return err
	}
	t.pool = t.db.Statement.ConnPool
	if p, ok := t.pool.(*gorm.PreparedStmtDB); ok {
		t.pool = p.ConnPool // no place for fixed texts that gorm would not find again
	}
	if _, ok := t.pool.(gorm.TxCommitter); ok {
		return errors.New("gormtracker: the *gorm.DB is in a transaction; give New one that is not, and the transaction to In")
	}
	return nil
}

func checkDB(db *gorm.DB) error {
	switch {
	case db == nil || db.Config == nil || db.Statement == nil || db.Dialector == nil:
		return errors.New("gormtracker: the *gorm.DB is nil, or not opened")
	case db.Error != nil:
		return fmt.Errorf("gormtracker: the *gorm.DB has an error: %w", db.Error)
	case db.DryRun:
		return errors.New("gormtracker: the *gorm.DB is in DryRun mode, which writes nothing")
	}
	return nil
}

// Validate reports what is wrong with the *gorm.DB or the Config given to New. It
// does not connect.
func (t *Tracker) Validate() error { return t.err }

// In returns a Tracker that works in the caller's transaction tx, and is of no
// use after it. Once then commits nothing: its key, and what fn writes in tx, are
// there when tx commits. What has failed in fn is undone up to where Once began
// (by a savepoint), so that tx can go on.
func (t *Tracker) In(tx *gorm.DB) *Tracker {
	in := *t
	in.tx = tx
	if _, err := txOf(tx); err != nil {
		in.err = errors.Join(t.err, err)
	}
	return &in
}

// HasProcessed implements idempotency.Tracker.
func (t *Tracker) HasProcessed(ctx context.Context, key string) (bool, error) {
	c, err := t.conn(ctx, key)
	if err != nil || t.isRunning(ctx, hashOf(key)) { // in its transaction it would be there
		return false, err
	}
	var one int
	err = c.QueryRowContext(t.statement(ctx), t.d.seen, hashOf(key)).Scan(&one)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("gormtracker: has processed: %w", err)
	}
	return true, nil
}

// MarkAsProcessed implements idempotency.Tracker. It waits for a Once of the key
// that is in progress.
func (t *Tracker) MarkAsProcessed(ctx context.Context, key string) error {
	c, err := t.conn(ctx, key)
	if err != nil {
		return err
	}
	if _, err := t.take(ctx, c, hashOf(key)); err != nil {
		return fmt.Errorf("gormtracker: mark as processed: %w", err)
	}
	return nil
}

// Purge deletes the keys that are older than Config.Retention, a thousand at a
// time, past any transaction, and returns how many they were.
func (t *Tracker) Purge(ctx context.Context) (int, error) {
	const batch = 1000
	if t.err != nil {
		return 0, t.err
	}
	for deleted := 0; ; {
		res, err := t.pool.ExecContext(ctx, t.d.purge, t.d.age(t.cfg.Retention), batch)
		if err != nil {
			return deleted, fmt.Errorf("gormtracker: purge: %w", err)
		}
		n, err := res.RowsAffected()
		if err != nil {
			return deleted, fmt.Errorf("gormtracker: purge: %w", err)
		}
		if deleted += int(n); n < batch {
			return deleted, nil
		}
	}
}

// Migrate makes the table, unless it is there. A user without the right to make
// tables needs it to be there: Schema returns its SQL. It may be called by many
// at once.
func (t *Tracker) Migrate(ctx context.Context) error {
	if t.err != nil {
		return t.err
	}
	if t.check(ctx) == nil {
		return nil
	}
	for _, q := range t.d.create {
		if _, err := t.pool.ExecContext(ctx, q); err != nil && t.check(ctx) != nil {
			// With it there, another has made it in this moment.
			return fmt.Errorf("gormtracker: migrate: this user could not make the table: "+
				"have it made (gormtracker.Schema returns its SQL): %w", err)
		}
	}
	return nil
}

func (t *Tracker) check(ctx context.Context) error {
	rows, err := t.pool.QueryContext(ctx, t.d.check)
	if err != nil {
		return err
	}
	return errors.Join(rows.Err(), rows.Close()) //nolint:sqlclosecheck // there is nothing to read
}

// Schema returns the SQL that makes the table, for those who make it by other
// means. The dialect is "sqlite", "postgres" or "mysql" (MariaDB, too).
func Schema(dialect string, cfg Config) (string, error) {
	if err := cfg.Validate(); err != nil {
		return "", err
	}
	d, err := newDialect(dialect, cfg)
	if err != nil {
		return "", err
	}
	return strings.Join(d.create, ";\n") + ";\n", nil
}

func hashOf(key string) []byte {
	h := sha256.Sum256([]byte(key))
	return h[:]
}

// statement is the context for a statement in somebody's transaction.
func (t *Tracker) statement(ctx context.Context) context.Context {
	if t.d.uncancelled {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// take inserts a key.
func (t *Tracker) take(ctx context.Context, c gorm.ConnPool, hash []byte) (fresh bool, err error) {
	res, err := c.ExecContext(t.statement(ctx), t.d.take, t.d.args(hash)...)
	if err != nil {
		if isContended(err) {
			err = fmt.Errorf("%w: %w", idempotency.ErrInProgress, err)
		}
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// rollbackTime bounds what is undone after the context of a call has ended.
const rollbackTime = 5 * time.Second
