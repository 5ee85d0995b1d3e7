package main

import (
	"context"
	"database/sql"
	"errors"

	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
)

// chunk is how many rows are filled in by one statement.
const chunk = 500_000

// engine is what differs between databases.
type engine interface {
	version(ctx context.Context) (string, error)
	open(cfg gormstore.Config) (*gormstore.Store, error)
	// fills are formats of statements that insert final rows of the numbers from
	// one to another, as they are after months: ids in order of time, expiring
	// some day.
	fills(prefix string) []string
	analyze(prefix string) []string
	// calm ends what the server still does about the filling.
	calm() string
}

func engineOf(o options) (engine, error) {
	switch {
	case o.postgres != "" && o.mysql == "":
		return onPostgres(o.postgres), nil
	case o.mysql != "" && o.postgres == "":
		return onMySQL(o.mysql), nil
	}
	return nil, errors.New("give either -postgres or -mysql")
}

type onPostgres string

func (dsn onPostgres) open(cfg gormstore.Config) (*gormstore.Store, error) {
	return postgres.Open(string(dsn), postgres.Config{TablePrefix: cfg.TablePrefix, GORM: quiet()})
}

func (dsn onPostgres) version(ctx context.Context) (string, error) {
	return ask(ctx, dsn.open, `SELECT version()`)
}

func (onPostgres) fills(prefix string) []string {
	const id = `(lpad(to_hex(i), 12, '0') || '70008000' || lpad(to_hex(i::bigint * 7919), 12, '0'))::uuid`
	const values = `2, now() - i * interval '1 second', now(), now() + i * interval '1 ms' + interval '1 day', '{}', '{}'` +
		` FROM generate_series(%d, %d) AS i`
	return []string{
		`INSERT INTO "` + prefix + `published" (id, version, name, status, added_at, updated_at, expires_at, headers, body)` +
			` SELECT ` + id + `, 'v1', 'orders.created', ` + values,
		`INSERT INTO "` + prefix + `received" (id, version, group_name, subscriber, name, message_id, status, added_at,` +
			` updated_at, expires_at, headers, body) SELECT ` + id + `, 'v1', 'g', 's', 'orders.created', ` + id +
			`::text::bytea, ` + values,
	}
}

func (onPostgres) analyze(prefix string) []string {
	return []string{`ANALYZE "` + prefix + `published", "` + prefix + `received"`}
}

func (onPostgres) calm() string { return `CHECKPOINT` }

type onMySQL string

func (dsn onMySQL) open(cfg gormstore.Config) (*gormstore.Store, error) {
	db, err := gorm.Open(mysql.Open(string(dsn)), quiet())
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	cfg.Closer = pool
	return gormstore.New(db, cfg), nil
}

func (dsn onMySQL) version(ctx context.Context) (string, error) {
	return ask(ctx, dsn.open, `SELECT version()`)
}

func (onMySQL) fills(prefix string) []string {
	// The numbers are made of a table of a thousand by itself: a recursion has a
	// limit that differs between MySQL and MariaDB.
	const numbers = ` FROM (SELECT a.d + b.d * 10 + c.d * 100 + d.d * 1000 + e.d * 10000 + f.d * 100000 + %[1]d AS i FROM ` +
		digits + ` a, ` + digits + ` b, ` + digits + ` c, ` + digits + ` d, ` + digits + ` e, ` + digits + ` f) n WHERE i <= %[2]d`
	const id = `UNHEX(CONCAT(LPAD(HEX(i), 12, '0'), '70008000', LPAD(HEX(i * 7919), 12, '0')))`
	const now = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`
	const values = `2, ` + now + ` - i * 1000000, ` + now + `, ` + now + ` + 86400000000 + i * 1000, 4, '{}', '{}'` + numbers
	return []string{
		"INSERT INTO `" + prefix + "published` (id, version, name, status, added_at, updated_at, expires_at, size, headers, body)" +
			` SELECT ` + id + `, 'v1', 'orders.created', ` + values,
		"INSERT INTO `" + prefix + "received` (id, version, group_name, subscriber, name, message_id, status, added_at," +
			` updated_at, expires_at, size, headers, body) SELECT ` + id + `, 'v1', 'g', 's', 'orders.created', HEX(` + id + `), ` + values,
	}
}

const digits = `(SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5` +
	` UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)`

func (onMySQL) analyze(prefix string) []string {
	return []string{"ANALYZE TABLE `" + prefix + "published`, `" + prefix + "received`"}
}

func (onMySQL) calm() string { return `SELECT 1` }

func quiet() *gorm.Config { return &gorm.Config{Logger: logger.Discard} }

// ask runs a query of one value on a pool of its own.
func ask(ctx context.Context, open func(gormstore.Config) (*gormstore.Store, error), query string) (answer string, err error) {
	s, err := open(gormstore.Config{})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var pool *sql.DB
	if pool, err = s.DB().DB(); err != nil {
		return "", err
	}
	err = pool.QueryRowContext(ctx, query).Scan(&answer)
	return answer, err
}
