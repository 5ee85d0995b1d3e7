// Package postgres opens a gormstore.Store on PostgreSQL 13 or later, through
// pgx.
//
// An error ends a transaction on PostgreSQL, and a publish in it fails with
// storage.ErrTxDone. What a *sql.Tx does not show is that COMMIT or ROLLBACK was
// run in it as a statement: what follows is then committed by itself, a publish
// too. End it by its methods.
package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/capbus/gocap/storage/gormstore"
)

// Open makes a store on the database of the DSN, a URL or key=value pairs as for
// libpq. It does not connect: the start of a bus does, and makes the tables;
// until then, Migrate does. The store's Close closes the connections.
//
// Behind PgBouncer in transaction mode, before its version 1.21, the DSN needs
// default_query_exec_mode=exec, for what the application does on Store.DB and
// for publishing: prepared statements are of a connection. The store's own
// statements need no session.
//
// A user without the right to make tables needs USAGE on the schema, SELECT,
// INSERT, UPDATE and DELETE on the tables, and SELECT on cap_migrations.
func Open(dsn string, cfg Config) (*gormstore.Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	conn, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("postgres: open: %w", err)
	}
	pool := stdlib.OpenDB(*conn)
	pool.SetMaxOpenConns(cfg.MaxConns)
	pool.SetMaxIdleConns(max(cfg.MaxConns, DefaultMaxConns))
	pool.SetConnMaxIdleTime(cfg.ConnMaxIdleTime)
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: pool}), cfg.gormConfig())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: open: %w", err), pool.Close())
	}
	store := cfg.store()
	store.Closer = pool
	return gormstore.New(db, store), nil
}
