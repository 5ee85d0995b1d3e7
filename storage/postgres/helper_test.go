package postgres_test

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// serverDSN is that of a server on which tests may make databases.
func serverDSN() string {
	if dsn := os.Getenv("GOCAP_POSTGRES_DSN"); dsn != "" {
		return dsn
	}
	return "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
}

// onServer runs statements outside of the tests' own databases.
func onServer(tb testing.TB, dsn string, statements ...string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	must(tb, err)
	defer conn.Close(ctx) //nolint:errcheck // it is not used any more
	for _, q := range statements {
		_, err := conn.Exec(ctx, q)
		must(tb, err)
	}
}

// newDatabase makes a database that is dropped after the test, and returns its
// DSN with more parameters.
func newDatabase(tb testing.TB, params ...string) string {
	tb.Helper()
	name := "gocap_test_" + strings.ToLower(rand.Text()[:12])
	onServer(tb, serverDSN(), `CREATE DATABASE `+name)
	tb.Cleanup(func() { onServer(tb, serverDSN(), `DROP DATABASE `+name+` WITH (FORCE)`) })
	u, err := url.Parse(serverDSN())
	must(tb, err)
	u.Path = "/" + name
	q := u.Query()
	for _, p := range params {
		key, value, _ := strings.Cut(p, "=")
		q.Set(key, value)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// testConns keeps the tests that run at once within what a server allows.
const testConns = 8

func open(tb testing.TB, dsn string, cfg postgres.Config) *gormstore.Store {
	tb.Helper()
	if cfg.MaxConns == 0 {
		cfg.MaxConns = testConns
	}
	s, err := postgres.Open(dsn, cfg)
	must(tb, err)
	tb.Cleanup(func() { must(tb, s.Close()) })
	return s
}

// newStore makes a database, and a store with its tables.
func newStore(tb testing.TB, cfg postgres.Config, params ...string) *gormstore.Store {
	tb.Helper()
	s := open(tb, newDatabase(tb, params...), cfg)
	must(tb, s.Migrate(tb.Context()))
	return s
}
