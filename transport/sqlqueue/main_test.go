package sqlqueue_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/sqlqueue"
	"github.com/capbus/gocap/transport/transporttest"
)

// wait bounds every wait of a test for one event.
const wait = 30 * time.Second

func TestMain(m *testing.M) {
	if dsn := os.Getenv(childDSN); dsn != "" {
		child(dsn)
		return
	}
	goleak.VerifyTestMain(m)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func newID() string {
	id := ids.New()
	return fmt.Sprintf("%x", id[:])
}

// serverDSN is that of a server on which tests may make databases.
func serverDSN() string {
	return cmp.Or(os.Getenv("GOCAP_POSTGRES_DSN"), "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable")
}

// run runs statements on a connection of its own.
func run(tb testing.TB, dsn string, statements ...string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), wait)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	must(tb, err)
	defer conn.Close(ctx) //nolint:errcheck // it is not used any more
	for _, q := range statements {
		_, err := conn.Exec(ctx, q)
		must(tb, err)
	}
}

// newDatabase makes a database that is dropped after the test, and returns its DSN.
func newDatabase(tb testing.TB) string {
	tb.Helper()
	name := "gocap_test_" + strings.ToLower(rand.Text()[:12])
	run(tb, serverDSN(), `CREATE DATABASE `+name)
	tb.Cleanup(func() { run(tb, serverDSN(), `DROP DATABASE `+name+` WITH (FORCE)`) })
	return with(tb, serverDSN(), "/"+name)
}

// with returns a DSN with another path, unless it is empty, and more parameters.
func with(tb testing.TB, dsn, path string, params ...string) string {
	tb.Helper()
	u, err := url.Parse(dsn)
	must(tb, err)
	u.Path = cmp.Or(path, u.Path)
	q := u.Query()
	for _, p := range params {
		key, value, _ := strings.Cut(p, "=")
		q.Set(key, value)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// open returns a transport that is closed after the test.
func open(tb testing.TB, cfg sqlqueue.Config) *sqlqueue.Transport {
	tb.Helper()
	if cfg.DB == nil {
		cfg.MaxConns = cmp.Or(cfg.MaxConns, 4)
	}
	tr := sqlqueue.New(cfg)
	must(tb, tr.Validate())
	tb.Cleanup(func() { must(tb, tr.Close()) })
	return tr
}

// db is an independent client.
func db(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	d, err := sql.Open("pgx", dsn)
	must(tb, err)
	tb.Cleanup(func() { must(tb, d.Close()) })
	return d
}

func count(tb testing.TB, d *sql.DB, table string) int {
	tb.Helper()
	var n int
	must(tb, d.QueryRowContext(tb.Context(), `SELECT count(*) FROM "`+table+`"`).Scan(&n))
	return n
}

// eventually waits for a condition that no event tells of.
func eventually(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), wait)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatalf("not within %v: %s", wait, what)
		}
	}
}

// TestConformance runs each case in tables of its own.
func TestConformance(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	for name, given := range map[string]bool{"own pool": false, "given pool": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transporttest.Suite{
				Open: func(t *testing.T) transport.Transport {
					t.Helper()
					id := "t" + newID()[20:]
					cfg := sqlqueue.Config{DSN: with(t, dsn, "", "application_name="+id), TablePrefix: id + "_"}
					if given {
						cfg.DB, cfg.DSN = db(t, cfg.DSN), ""
						cfg.DB.SetMaxOpenConns(4)
					}
					return named{open(t, cfg), id}
				},
				// A network that is away for longer than a lease. A shorter cut takes
				// nothing out of a receiver's hands, see TestShortCut.
				Cut: func(t *testing.T, tr transport.Transport) {
					t.Helper()
					run(t, dsn, `DELETE FROM "`+tr.(named).name+`_queue_receivers"`, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '`+tr.(named).name+`'`)
				},
			}.Run(t)
		})
	}
}

// named is a Transport whose connections have a name.
type named struct {
	*sqlqueue.Transport

	name string
}

func BenchmarkTransport(b *testing.B) {
	transporttest.Bench(b, func(b *testing.B) transport.Transport {
		b.Helper()
		return open(b, sqlqueue.Config{DSN: newDatabase(b), MaxConns: 10})
	})
}
