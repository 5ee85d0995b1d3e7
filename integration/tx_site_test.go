package integration

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/libtnb/sqlite"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	bunschema "github.com/uptrace/bun/schema"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/pgxtx"
	storepg "github.com/capbus/gocap/storage/postgres"
	storesqlite "github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// database is one that the table of transactions runs on.
type database struct {
	name string
	make func(tb testing.TB) *site
}

func databases() []database {
	return []database{{"sqlite", onSQLite}, {"postgres", siteOnPostgres}, {"mariadb", onMariaDB}}
}

// site is a database of a test's own, with what differs between databases.
type site struct {
	tb      testing.TB
	store   *gormstore.Store
	bus     *cap.Bus
	handled arrivals
	runs    atomic.Int64 // numbers what is done

	db      *sql.DB // the application's pool; its connections can be cut
	gorm    func(gorm.ConnPool) gorm.Dialector
	bun     func() bunschema.Dialect
	sqlx    string          // the name of the driver
	pgx     *pgx.ConnConfig // nil: it is not PostgreSQL
	single  bool            // it has one transaction at a time
	fragile bool            // a refused statement ends the transaction

	// Statements.
	slow      string // takes long, and can be interrupted
	backend   string // tells who the connection is; "": there is none
	kill      string // ends that connection
	waits     string // counts whether that connection waits for a lock; "": need not be known
	deferred  string // makes the commit fail; "": there is nothing like it
	impatient string // lets the transaction look for deadlocks at once
}

const txSchema = `CREATE TABLE orders (id VARCHAR(40) PRIMARY KEY)`

func (s *site) exec(tb testing.TB, statements ...string) {
	tb.Helper()
	for _, q := range statements {
		_, err := s.db.ExecContext(tb.Context(), q)
		must(tb, err)
	}
}

func onSQLite(tb testing.TB) *site {
	tb.Helper()
	store := opened(tb, file(tb), func(c *storesqlite.Config) { c.BusyTimeout = time.Minute })
	db, err := store.DB().DB()
	must(tb, err)
	s := &site{
		tb: tb, store: store, db: db, sqlx: "sqlite", single: true,
		gorm:     func(p gorm.ConnPool) gorm.Dialector { return sqlite.New(sqlite.Config{Conn: p}) },
		bun:      func() bunschema.Dialect { return sqlitedialect.New() },
		slow:     "INSERT INTO orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT 'slow'||i FROM n",
		deferred: "INSERT INTO child VALUES (%d)",
	}
	s.exec(tb, txSchema, "CREATE TABLE parent (n INTEGER PRIMARY KEY)",
		"CREATE TABLE child (n INTEGER REFERENCES parent(n) DEFERRABLE INITIALLY DEFERRED)")
	return s
}

func siteOnPostgres(tb testing.TB) *site {
	tb.Helper()
	dsn := postgresDatabase(tb)
	store, err := storepg.Open(dsn, storepg.Config{
		MaxConns: 8, GORM: &gorm.Config{Logger: logger.Discard}, Binders: []storage.TxBinder{pgxtx.Bind},
	})
	must(tb, err)
	tb.Cleanup(func() { must(tb, store.Close()) })
	cfg, err := pgx.ParseConfig(dsn)
	must(tb, err)
	cfg.Host, cfg.Port = proxied(tb, cfg.Host, cfg.Port)
	cfg.Fallbacks = nil
	s := &site{
		tb: tb, store: store, db: stdlib.OpenDB(*cfg), sqlx: "pgx", pgx: cfg, fragile: true,
		gorm:      func(p gorm.ConnPool) gorm.Dialector { return postgres.New(postgres.Config{Conn: p}) },
		bun:       func() bunschema.Dialect { return pgdialect.New() },
		slow:      "SELECT pg_sleep(60)",
		backend:   "SELECT pg_backend_pid()",
		kill:      "SELECT pg_terminate_backend(%d, 10000)",
		waits:     "SELECT count(*) FROM pg_stat_activity WHERE pid = %d AND wait_event_type = 'Lock'",
		deferred:  "INSERT INTO twice VALUES (%[1]d), (%[1]d)",
		impatient: "SET LOCAL deadlock_timeout = '10ms'",
	}
	s.db.SetMaxOpenConns(12)
	s.db.SetMaxIdleConns(12)
	tb.Cleanup(func() { must(tb, s.db.Close()) })
	s.exec(tb, txSchema, "CREATE TABLE twice (n bigint UNIQUE DEFERRABLE INITIALLY DEFERRED)",
		"CREATE TABLE locks (n bigint PRIMARY KEY, v bigint)")
	return s
}

// serve starts a bus whose poll is a minute away.
func (s *site) serve(tb testing.TB) {
	tb.Helper()
	s.start(tb, memqueue.New(memqueue.Config{}), subscribe.To("order.*", func(ctx context.Context, _ order) error {
		info, _ := cap.InfoFromContext(ctx)
		s.handled.add(info.Message.Topic)
		return nil
	}, subscribe.Group("g")))
}

func (s *site) start(tb testing.TB, tr transport.Transport, subs ...subscribe.Subscription) {
	tb.Helper()
	s.bus = begun(tb, made(tb, s.store, tr, func(o *cap.Options) {
		o.Subscriptions, o.PollInterval, o.FallbackWindow = subs, time.Minute, 2*time.Minute
	}))
}
