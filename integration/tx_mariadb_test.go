package integration

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/uptrace/bun/dialect/mysqldialect"
	bunschema "github.com/uptrace/bun/schema"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	storemysql "github.com/capbus/gocap/storage/mysql"
)

// mariaDB makes a database that is dropped after the test.
func mariaDB(tb testing.TB) *driver.Config {
	tb.Helper()
	cfg, err := driver.ParseDSN(cmp.Or(os.Getenv("GOCAP_MYSQL_DSN"), "root@tcp(127.0.0.1:3306)/"))
	must(tb, err)
	cfg.Logger = &driver.NopLogger{}                  // connections are cut on purpose
	name := fmt.Sprintf("gocap_tx_%x", rand.Uint64()) //nolint:gosec // it need not be secret
	admin := func(q string) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
		defer cancel()
		connector, err := driver.NewConnector(cfg.Clone())
		must(tb, err)
		db := sql.OpenDB(connector)
		defer db.Close() //nolint:errcheck // it is not used any more
		_, err = db.ExecContext(ctx, q)
		must(tb, err)
	}
	admin("CREATE DATABASE " + name)
	tb.Cleanup(func() { admin("DROP DATABASE " + name) })
	database := cfg.Clone()
	database.DBName = name
	return database
}

func onMariaDB(tb testing.TB) *site {
	tb.Helper()
	cfg := mariaDB(tb)
	store, err := storemysql.Open(cfg.FormatDSN(), storemysql.Config{MaxConns: 8, GORM: &gorm.Config{Logger: logger.Discard}})
	must(tb, err)
	tb.Cleanup(func() { must(tb, store.Close()) })
	host, text, err := net.SplitHostPort(cfg.Addr)
	must(tb, err)
	port, err := strconv.ParseUint(text, 10, 16)
	must(tb, err)
	host, cut := proxied(tb, host, uint16(port))
	cfg.Addr = net.JoinHostPort(host, strconv.Itoa(int(cut)))
	connector, err := driver.NewConnector(cfg)
	must(tb, err)
	s := &site{
		tb: tb, store: store, db: sql.OpenDB(connector), sqlx: "mysql",
		gorm:    func(p gorm.ConnPool) gorm.Dialector { return mysql.New(mysql.Config{Conn: p}) },
		bun:     func() bunschema.Dialect { return mysqldialect.New() },
		slow:    "SELECT SLEEP(5) FROM (SELECT 1) AS x",
		backend: "SELECT CONNECTION_ID()",
		kill:    "KILL %d",
	}
	s.db.SetMaxOpenConns(12)
	s.db.SetMaxIdleConns(12)
	tb.Cleanup(func() { must(tb, s.db.Close()) })
	s.exec(tb, txSchema, "CREATE TABLE locks (n BIGINT PRIMARY KEY, v BIGINT)")
	return s
}
