package pgxtx_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/pgxtx"
)

const envDSN = "GOCAP_POSTGRES_DSN"

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// newDatabase makes a database with a table t, for this test alone.
func newDatabase(tb testing.TB) *pgx.ConnConfig {
	tb.Helper()
	dsn := os.Getenv(envDSN)
	if dsn == "" {
		dsn = "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
	}
	ctx := context.WithoutCancel(tb.Context()) // there is a cleanup
	admin, err := pgx.Connect(ctx, dsn)
	if err != nil {
		tb.Fatalf("these tests need PostgreSQL; %s names one: %v", envDSN, err)
	}
	name := fmt.Sprintf("gocap_pgxtx_%x", rand.Uint64()) //nolint:gosec // it need not be secret
	_, err = admin.Exec(ctx, "CREATE DATABASE "+name)
	must(tb, err)
	tb.Cleanup(func() {
		_, err := admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
		if err != nil {
			tb.Error(err)
		}
		_ = admin.Close(ctx)
	})
	cfg := admin.Config()
	cfg.Database = name
	conn, err := pgx.ConnectConfig(ctx, cfg)
	must(tb, err)
	_, err = conn.Exec(ctx, `CREATE TABLE t (
		n bigint UNIQUE DEFERRABLE INITIALLY DEFERRED, s text, b bytea, ok boolean, id uuid)`)
	must(tb, err)
	must(tb, conn.Close(ctx))
	return cfg
}

func traced(cfg *pgx.ConnConfig) *pgx.ConnConfig {
	cfg = cfg.Copy()
	cfg.Tracer = pgxtx.Tracer{}
	return cfg
}

func connect(tb testing.TB, cfg *pgx.ConnConfig) *pgx.Conn {
	tb.Helper()
	ctx := context.WithoutCancel(tb.Context())
	conn, err := pgx.ConnectConfig(ctx, cfg)
	must(tb, err)
	tb.Cleanup(func() {
		_ = conn.Close(ctx)
		<-conn.PgConn().CleanupDone()
	})
	return conn
}

func newPool(tb testing.TB, cfg *pgx.ConnConfig) *pgxpool.Pool {
	tb.Helper()
	pc, err := pgxpool.ParseConfig(cfg.ConnString())
	must(tb, err)
	pc.ConnConfig = cfg.Copy()
	pc.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(tb.Context(), pc)
	must(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

// beginner is a connection or a pool.
type beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// told notes what OnEnd says.
type told struct {
	mu    sync.Mutex
	calls []bool
}

// want checks all that was said until now.
func (o *told) want(tb testing.TB, what string, calls ...bool) {
	tb.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if fmt.Sprint(o.calls) != fmt.Sprint(calls) {
		tb.Errorf("%s: OnEnd said %v, want %v", what, o.calls, calls)
	}
}

func bind(tb testing.TB, tx any) storage.Execer {
	tb.Helper()
	e, ok, err := pgxtx.Bind(tx)
	must(tb, err)
	if !ok {
		tb.Fatalf("%T is not known", tx)
	}
	return e
}

// watch publishes in tx, as an engine would, and listens.
func watch(tb testing.TB, tx pgx.Tx) *told {
	tb.Helper()
	e := bind(tb, tx)
	_, err := e.ExecContext(tb.Context(), "INSERT INTO t (s) VALUES ($1)", "row")
	must(tb, err)
	n, ok := e.(storage.EndNotifier)
	if !ok {
		tb.Fatal("it cannot tell when the transaction has ended")
	}
	o := &told{}
	n.OnEnd(func(committed bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.calls = append(o.calls, committed)
	})
	o.want(tb, "open")
	return o
}

func rows(tb testing.TB, db beginner) (n int) {
	tb.Helper()
	must(tb, db.QueryRow(tb.Context(), "SELECT count(*) FROM t").Scan(&n))
	return n
}
