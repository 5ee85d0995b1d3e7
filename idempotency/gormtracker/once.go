package gormtracker

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/capbus/gocap/idempotency"
)

// Once implements idempotency.Tracker. A key in progress it waits for, as long as
// ctx and the database allow: when that lets nobody wait any longer
// (innodb_lock_wait_timeout, lock_timeout, a deadlock) it is ErrInProgress. In a
// transaction of the caller's (In, Config.Tx) such an error may have ended that:
// return it, and let the transaction be rolled back. A Once within fn, with its
// context, joins the transaction of the outer one; like all that is done in a
// transaction, it must not run beside anything else there.
func (t *Tracker) Once(ctx context.Context, key string, fn func(ctx context.Context) error) error {
	if err := t.usable(ctx, key); err != nil {
		return err
	}
	hash := hashOf(key)
	if t.isRunning(ctx, hash) {
		return idempotency.ErrInProgress // its row is there, or would be waited for for ever
	}
	tx, err := t.caller(ctx)
	if err != nil {
		return err
	}
	if tx != nil {
		return t.inside(ctx, tx, hash, fn)
	}
	db := t.db.Session(&gorm.Session{NewDB: true, Context: ctx})
	return asMade(fn, func(fn func(ctx context.Context) error) error {
		return db.Transaction(func(tx *gorm.DB) error {
			c, err := txOf(tx)
			if err != nil {
				return err
			}
			return t.guarded(ctx, c, hash, func() error { return t.run(ctx, tx, hash, fn) })
		})
	})
}

// asMade returns fn's error as fn made it, and others with the operation.
func asMade(fn func(ctx context.Context) error, once func(fn func(ctx context.Context) error) error) error {
	var failed error
	err := once(func(ctx context.Context) error {
		failed = fn(ctx)
		return failed
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("gormtracker: once: %w", err)
	}
	return nil
}

// guarded runs f after a savepoint. To release that afterwards tells that the
// database, or f, has ended the transaction meanwhile, as after a deadlock whose
// error f has swallowed: without it, Once would commit nothing and return nil.
func (t *Tracker) guarded(ctx context.Context, c gorm.ConnPool, hash []byte, f func() error) error {
	if _, err := c.ExecContext(t.statement(ctx), "SAVEPOINT "+savepoint(hash)); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	_, err := c.ExecContext(t.statement(ctx), "RELEASE SAVEPOINT "+savepoint(hash))
	return err
}

// savepoint is a name of its own for each key: MySQL forgets an outer savepoint of
// the same name.
func savepoint(hash []byte) string { return "cap_once_" + hex.EncodeToString(hash[:8]) }

// run takes the key in tx and runs fn.
func (t *Tracker) run(ctx context.Context, tx *gorm.DB, hash []byte, fn func(ctx context.Context) error) error {
	c, err := txOf(tx)
	if err != nil {
		return err
	}
	fresh, err := t.take(ctx, c, hash)
	if err != nil || !fresh {
		return err
	}
	r := &running{outer: runningIn(ctx), db: t.db, table: t.d.take, hash: string(hash), tx: tx}
	return fn(context.WithValue(ctx, runningKey{}, r))
}

// inside is run in a transaction of the caller's.
func (t *Tracker) inside(ctx context.Context, tx *gorm.DB, hash []byte, fn func(ctx context.Context) error) (err error) {
	c, err := txOf(tx)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if done {
			return
		}
		// fn has failed, panicked or ended its goroutine.
		if failed := undo(ctx, c, savepoint(hash)); failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	err = asMade(fn, func(fn func(ctx context.Context) error) error {
		return t.guarded(ctx, c, hash, func() error { return t.run(ctx, tx, hash, fn) })
	})
	done = err == nil
	return err
}

// undo takes back what was done since the savepoint. Without it, as after a
// deadlock, the whole transaction has ended.
func undo(ctx context.Context, c gorm.ConnPool, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	for _, q := range []string{"ROLLBACK TO SAVEPOINT ", "RELEASE SAVEPOINT "} {
		if _, err := c.ExecContext(ctx, q+name); err != nil {
			return fmt.Errorf("gormtracker: the caller's transaction cannot go on, roll it back: %w", err)
		}
	}
	return nil
}

// usable says why nothing can be done.
func (t *Tracker) usable(ctx context.Context, key string) error {
	switch {
	case t.err != nil:
		return t.err
	case key == "":
		return idempotency.ErrNoKey
	}
	return ctx.Err()
}

// conn is where a single statement runs: the caller's transaction, else the pool.
func (t *Tracker) conn(ctx context.Context, key string) (gorm.ConnPool, error) {
	if err := t.usable(ctx, key); err != nil {
		return nil, err
	}
	tx, err := t.caller(ctx)
	if err != nil {
		return nil, err
	}
	if tx == nil {
		return t.pool, nil
	}
	return txOf(tx)
}

// caller is the transaction of the caller; nil: there is none to use. That of an
// enclosing Once is one: another would wait for it on SQLite.
func (t *Tracker) caller(ctx context.Context) (*gorm.DB, error) {
	if t.tx != nil {
		return t.tx, nil
	}
	if t.cfg.Tx == nil {
		for r := runningIn(ctx); r != nil; r = r.outer {
			if r.db == t.db {
				return r.tx, nil
			}
		}
		return nil, nil
	}
	found, err := t.cfg.Tx(ctx)
	if err != nil {
		return nil, fmt.Errorf("gormtracker: Config.Tx: %w", err)
	}
	tx, ok := found.(*gorm.DB)
	if !ok {
		return nil, fmt.Errorf("gormtracker: Config.Tx returned a %T, not a *gorm.DB", found)
	}
	return tx, nil
}

// txOf is the connection of a *gorm.DB that is in a transaction.
func txOf(tx *gorm.DB) (gorm.ConnPool, error) {
	if err := checkDB(tx); err != nil {
		return nil, err
	}
	c := tx.Statement.ConnPool
	if p, ok := c.(*gorm.PreparedStmtTX); ok {
		c = p.Tx
	}
	if _, ok := c.(gorm.TxCommitter); !ok {
		return nil, errors.New("gormtracker: the *gorm.DB is not in a transaction; " +
			"use the one that db.Transaction gives to its function, or that db.Begin returns")
	}
	return c, nil
}

// running is a Once whose fn runs, in the context of fn.
type running struct {
	outer *running
	db    *gorm.DB
	table string // tells the tables of a database apart
	hash  string
	tx    *gorm.DB
}

type runningKey struct{}

// runningIn is the innermost Once whose fn runs with ctx; nil: there is none.
func runningIn(ctx context.Context) *running {
	r, _ := ctx.Value(runningKey{}).(*running)
	return r
}

// isRunning reports whether ctx is that of the fn of this key.
func (t *Tracker) isRunning(ctx context.Context, hash []byte) bool {
	for r := runningIn(ctx); r != nil; r = r.outer {
		if r.db == t.db && r.table == t.d.take && r.hash == string(hash) {
			return true
		}
	}
	return false
}

// TxFromContext returns the transaction of the innermost Once whose fn runs with
// ctx: what fn writes in it is committed with the key. False outside.
func TxFromContext(ctx context.Context) (*gorm.DB, bool) {
	r := runningIn(ctx)
	if r == nil {
		return nil, false
	}
	return r.tx.WithContext(ctx), true
}
