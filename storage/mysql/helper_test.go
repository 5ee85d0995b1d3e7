package mysql_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/mysql"
)

func TestMain(m *testing.M) {
	// The tests wait for the server and for leases, not for this processor.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	_ = driver.SetLogger(&driver.NopLogger{}) // connections are cut on purpose
	// The cache of gorm's PrepareStmt mode never ends its goroutine.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

const version = "v1"

// server is the DSN of the server that the tests use, without a database. They
// make databases of their own there, whose names begin with gocap_test_, and
// users; GOCAP_MYSQL_DSN is for a user who may.
func server() string { return cmp.Or(os.Getenv("GOCAP_MYSQL_DSN"), "root@tcp(127.0.0.1:3306)/") }

// dsn is the DSN of a database of the server, with further parameters.
func dsn(tb testing.TB, database string, params ...string) string {
	tb.Helper()
	return dsnOf(tb, server(), database, params...)
}

// dsnOf is as dsn, on the given server.
func dsnOf(tb testing.TB, server, database string, params ...string) string {
	tb.Helper()
	c, err := driver.ParseDSN(server)
	must(tb, err)
	c.DBName = database
	text := c.FormatDSN()
	sep := "?"
	if strings.Contains(text, "?") {
		sep = "&"
	}
	for _, p := range params {
		text += sep + p
		sep = "&"
	}
	return text
}

// admin is a pool that is in no database.
func admin(tb testing.TB) *sql.DB {
	tb.Helper()
	return adminOf(tb, server())
}

func adminOf(tb testing.TB, server string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("mysql", server)
	must(tb, err)
	tb.Cleanup(func() { must(tb, db.Close()) })
	return db
}

// newDatabase makes an empty database, whose name ends as given, and drops it at
// the end of the test.
func newDatabase(tb testing.TB, suffix string) string {
	tb.Helper()
	return databaseOf(tb, admin(tb), suffix)
}

func databaseOf(tb testing.TB, db *sql.DB, suffix string) string {
	tb.Helper()
	id := ids.New()
	name := "gocap_test_" + hex.EncodeToString(id[8:]) + suffix
	_, err := db.ExecContext(tb.Context(), "CREATE DATABASE `"+name+"` CHARACTER SET latin1")
	must(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Minute)
		defer cancel()
		_, err := db.ExecContext(ctx, "DROP DATABASE `"+name+"`")
		must(tb, err)
	})
	return name
}

func open(tb testing.TB, dsn string, change ...func(*mysql.Config)) *gormstore.Store {
	tb.Helper()
	cfg := mysql.Config{GORM: &gorm.Config{Logger: logger.Discard}}
	for _, f := range change {
		f(&cfg)
	}
	s, err := mysql.Open(dsn, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// newStore opens a store in a new database, with its tables.
func newStore(tb testing.TB, change ...func(*mysql.Config)) *gormstore.Store {
	tb.Helper()
	s := open(tb, dsn(tb, newDatabase(tb, "")), change...)
	must(tb, s.Migrate(tb.Context()))
	return s
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func join(tb testing.TB, s *gormstore.Store, b storage.Box) storage.Member {
	tb.Helper()
	m, err := s.Join(tb.Context(), storage.Instance{Box: b, Version: version, Lease: time.Minute})
	must(tb, err)
	return m
}

func outgoing(owner int64) *storage.Record {
	return &storage.Record{
		ID: ids.New(), Version: version, Topic: "orders.created", Owner: owner,
		Headers: []byte(`{"a":"b"}`), Body: []byte(`{"id":1}`),
	}
}

func incoming(id string) *storage.Record {
	return &storage.Record{
		ID: ids.New(), Version: version, Topic: "orders.created", Group: "g", Subscriber: "s", MessageID: id,
		Headers: []byte(`{}`), Body: []byte(`{"id":1}`),
	}
}

// publish appends records in a transaction of its own.
func publish(tb testing.TB, s *gormstore.Store, recs ...*storage.Record) {
	tb.Helper()
	must(tb, tryToPublish(tb.Context(), s, recs...))
}

func tryToPublish(ctx context.Context, s *gormstore.Store, recs ...*storage.Record) error {
	return s.DB().WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		w, err := s.Bind(tx) //nolint:contextcheck // it does no I/O
		if err != nil {
			return err
		}
		return w.Append(ctx, recs...)
	})
}

func due(tb testing.TB, m storage.Member, q storage.Query) []*storage.Record {
	tb.Helper()
	recs, _, err := m.Due(tb.Context(), q)
	must(tb, err)
	return recs
}

func outLane(limit int) storage.Query { return storage.Query{Lanes: []storage.Lane{{Limit: limit}}} }

func inLane(limit int) storage.Query {
	return storage.Query{Lanes: []storage.Lane{{Group: "g", Subscriber: "s", Limit: limit}}}
}

func count(tb testing.TB, s *gormstore.Store, query string, args ...any) int {
	tb.Helper()
	var n int
	must(tb, s.DB().Raw(query, args...).Row().Scan(&n))
	return n
}
