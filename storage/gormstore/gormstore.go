// Package gormstore keeps the outbox and the inbox in a SQL database that the
// application reaches through gorm. It runs on SQLite (3.35 or later; tested
// with 3.54 through modernc.org/sqlite) and imports no driver.
//
// Its statements are fixed texts that run on the connection pool itself, past
// gorm's callbacks, hooks and logger.
package gormstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
)

var (
	_ storage.Storage   = (*Store)(nil)
	_ storage.Migrator  = (*Store)(nil)
	_ storage.TxLimiter = (*Store)(nil)
)

// ReadPooler is implemented by a gorm.ConnPool that has a pool of its own for
// statements that only read, as package sqlite's has. The Store uses it for its
// looks, and the ConnPool itself for what it writes.
type ReadPooler interface {
	ReadPool() *sql.DB
}

// Urgenter is implemented by a gorm.ConnPool whose writers wait in a queue, as
// those of package sqlite do: what is begun with the context that Urgent returns
// goes before the others. The Store marks its heartbeats so: an application that
// writes a lot must not cost it its rows.
type Urgenter interface {
	Urgent(ctx context.Context) context.Context
}

// Store is a storage.Storage on a *gorm.DB. Its methods may be called
// concurrently.
type Store struct {
	db     *gorm.DB
	cfg    Config
	d      dialect
	writer gorm.TxBeginner
	pool   conn // that of writer
	reader *sql.DB
	looks  *statements // on reader
	hot    *statements // on writer
	err    error       // why the store cannot be used

	watch watch

	preparing sync.Mutex
	prepared  bool

	closing  sync.Once
	closeErr error
}

// New returns a Store on the tables that db can reach. It does not connect, and
// does not fail: Validate, and every other method, reports what is wrong with
// db or cfg. The *gorm.DB stays the caller's.
//
// Where package sqlite does not open it, an ordinary *gorm.DB lacks this:
//   - SQLite rolls a transaction back by itself when a statement that writes in
//     it is interrupted (its context ends), and for some errors, such as a full
//     disk. database/sql does not notice, and commits what follows one by one.
//     The Store notices before it publishes or settles in the transaction, but
//     what the application goes on to write stays, and is there twice when the
//     message is handled again. So let no statement of a transaction have a
//     context shorter than the transaction's, and return every error.
//   - Transactions do not take the write lock when they begin, unless the DSN
//     says so: one that reads first can fail with SQLITE_BUSY.
//   - Waiting for a connection is not bounded, and is in no order: a write past
//     a transaction that holds the only one hangs, and so can heartbeats behind
//     an application that writes a lot.
//   - Reads wait for writes where there is a single connection.
func New(db *gorm.DB, cfg Config) *Store {
	s := &Store{db: db, cfg: cfg}
	s.err = errors.Join(cfg.Validate(), s.usePool())
	return s
}

// usePool finds the pools below db.
func (s *Store) usePool() error {
	switch {
	case s.db == nil || s.db.Config == nil || s.db.Statement == nil:
		return errors.New("gormstore: the *gorm.DB is nil")
	case s.db.Error != nil:
		return fmt.Errorf("gormstore: the *gorm.DB has an error: %w", s.db.Error)
	case s.db.DryRun:
		return errors.New("gormstore: the *gorm.DB is in DryRun mode")
	case s.db.Dialector == nil:
		return errors.New("gormstore: the *gorm.DB has no Dialector")
	}
	var err error
	if s.d, err = newDialect(s.db.Name(), s.cfg); err != nil {
		return err
	}
	pool := s.db.Statement.ConnPool
	if p, ok := pool.(*gorm.PreparedStmtDB); ok {
		pool = p.ConnPool
	}
	if _, ok := pool.(gorm.TxCommitter); ok {
		return errors.New("gormstore: the *gorm.DB is in a transaction; give New one that is not")
	}
	w, ok := pool.(gorm.TxBeginner)
	if !ok {
		return fmt.Errorf("gormstore: %T, the pool of the *gorm.DB, cannot begin a transaction", pool)
	}
	s.writer, s.pool, s.hot = w, pool, newStatements(pool, s.d)
	if p, ok := pool.(ReadPooler); ok {
		s.reader = p.ReadPool()
	} else if db, err := s.db.DB(); err == nil {
		s.reader = db
	} else {
		return fmt.Errorf("gormstore: the *gorm.DB has no *sql.DB: %w", err)
	}
	s.looks = newStatements(s.reader, s.d)
	return nil
}

// Validate reports what is wrong with the *gorm.DB or the Config given to New.
// It does not connect.
func (s *Store) Validate() error { return s.err }

// DB returns the *gorm.DB of the store.
func (s *Store) DB() *gorm.DB { return s.db }

// Close closes Config.Closer: what an Open function opened. A *gorm.DB given to
// New stays open. Close may be called again, and then returns the same.
func (s *Store) Close() error {
	s.closing.Do(func() {
		if s.err == nil {
			s.closeErr = errors.Join(s.looks.close(), s.hot.close())
		}
		if s.cfg.Closer != nil {
			s.closeErr = errors.Join(s.closeErr, s.cfg.Closer.Close())
		}
	})
	return s.closeErr
}

// MaxTx implements storage.TxLimiter: one on SQLite, elsewhere two less than the
// pool may have connections, which are left to the engines.
func (s *Store) MaxTx() int {
	if s.err != nil {
		return 1
	}
	return s.d.maxTx(s.reader.Stats().MaxOpenConnections)
}

// Check implements storage.Storage.
func (s *Store) Check(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	if err := s.ready(ctx); err != nil {
		return fmt.Errorf("gormstore: check: %w", err)
	}
	if err := s.checkMigrations(ctx); err != nil {
		return fmt.Errorf("gormstore: check: %w", err)
	}
	for _, q := range s.d.check() {
		rows, err := s.reader.QueryContext(ctx, q.text, q.args...)
		if err == nil {
			err = errors.Join(rows.Err(), rows.Close()) //nolint:sqlclosecheck // there is nothing to read
		}
		if err != nil {
			return fmt.Errorf("gormstore: check tables (Migrate makes them): %w", err)
		}
	}
	return nil
}

// ready asks the server, once, what the dialect must know of it.
func (s *Store) ready(ctx context.Context) error {
	s.preparing.Lock()
	defer s.preparing.Unlock()
	if s.prepared {
		return nil
	}
	err := s.d.prepare(ctx, s.reader)
	s.prepared = err == nil
	return err
}

// Purge implements storage.Storage.
func (s *Store) Purge(ctx context.Context, p storage.Purge) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if p.Limit < 1 {
		return 0, fmt.Errorf("gormstore: purge %s: limit %d is not positive", p.Box, p.Limit)
	}
	var deleted int64
	err := s.inOne(ctx, true, func(ctx context.Context, tx conn) (err error) {
		deleted, err = s.d.purge(ctx, tx, p)
		return err
	})
	if err == nil {
		_, err = s.execOne(ctx, s.d.forgetInstances())
	}
	if err != nil {
		return 0, fmt.Errorf("gormstore: purge %s: %w", p.Box, err)
	}
	return int(deleted), nil
}
