// Package mysql opens a gormstore.Store on MySQL 8.0 or later, or MariaDB 10.6
// or later. Tested with MariaDB 10.11; written for MySQL 8, too, but not tested
// with it yet.
//
// MySQL and MariaDB end a transaction by themselves when it is the victim of a
// deadlock. Where the application overlooks the error, and goes on, each
// statement that follows is committed alone. On MariaDB a publish then fails
// with storage.ErrTxDone; MySQL cannot tell inside a statement, so that there
// only a handler's inbox transaction is safe from this. Return every error.
//
// InnoDB shows a commit to other sessions before it is on the disk, unless the
// server has a binary log (log_bin, sync_binlog=1: the default of MySQL 8, not of
// MariaDB). When the server crashes in between, a message may have been sent
// whose transaction is gone; that transaction's COMMIT has not succeeded for the
// application either. Switch the binary log on where that matters.
package mysql

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/capbus/gocap/storage/gormstore"
)

// dialTimeout bounds the opening of a connection, unless the DSN says otherwise.
const dialTimeout = 10 * time.Second

// Open connects to the server of a DSN of github.com/go-sql-driver/mysql, such
// as "user:password@tcp(host:3306)/shop". It makes no tables: Migrate, or the
// start of a bus, does. The store's Close closes the connections.
//
// Unless the DSN says otherwise, Open sets
//   - interpolateParams=true, without which every statement takes three round
//     trips instead of one;
//   - parseTime=true, as gorm expects it (our own tables hold no such times);
//   - timeout=10s, for dialling;
//   - maxAllowedPacket=0: the driver asks the server for its limit, and refuses
//     what is larger, where the server would close the connection, and with it
//     end the transaction.
//
// A session with autocommit=0, or that reads what is not committed, is refused
// when the store is first used.
func Open(dsn string, cfg Config) (*gormstore.Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	pool, err := openPool(dsn, cfg)
	if err != nil {
		return nil, fmt.Errorf("mysql: open: %w", err)
	}
	db, err := gorm.Open(gormmysql.New(gormmysql.Config{Conn: pool}), cfg.gormConfig())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mysql: open: %w", err), pool.Close())
	}
	return gormstore.New(db, cfg.store(pool)), nil
}

func openPool(dsn string, cfg Config) (*sql.DB, error) {
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err // it does not show the DSN, which holds the password
	}
	given := paramsOf(dsn)
	if !given["interpolateParams"] {
		c.InterpolateParams = true
	}
	if !given["parseTime"] {
		c.ParseTime = true
	}
	if !given["timeout"] {
		c.Timeout = dialTimeout
	}
	if !given["maxAllowedPacket"] {
		c.MaxAllowedPacket = 0
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(cfg.MaxConns)
	db.SetMaxIdleConns(cfg.MaxConns)
	db.SetConnMaxLifetime(connLifetime)
	db.SetConnMaxIdleTime(connIdleTime)
	return db, nil
}

// Connections are closed by us before the server or a proxy between closes them.
const (
	connLifetime = 30 * time.Minute
	connIdleTime = 3 * time.Minute
)

// paramsOf are the names of the parameters that a DSN sets.
func paramsOf(dsn string) map[string]bool {
	names := map[string]bool{}
	_, list, _ := strings.Cut(dsn[strings.LastIndexByte(dsn, '/')+1:], "?")
	for p := range strings.SplitSeq(list, "&") {
		name, _, _ := strings.Cut(p, "=")
		names[name] = true
	}
	return names
}
