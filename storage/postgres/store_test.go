package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	driver "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

const version = "v1"

// onPool makes a store on a pool as an application would open it.
func onPool(tb testing.TB, dsn string, cfg gormstore.Config, change ...func(*pgx.ConnConfig)) *gormstore.Store {
	tb.Helper()
	conn, err := pgx.ParseConfig(dsn)
	must(tb, err)
	for _, f := range change {
		f(conn)
	}
	pool := stdlib.OpenDB(*conn)
	pool.SetMaxOpenConns(testConns)
	pool.SetMaxIdleConns(testConns)
	db, err := gorm.Open(driver.New(driver.Config{Conn: pool}), &gorm.Config{Logger: logger.Discard, DisableAutomaticPing: true})
	must(tb, err)
	cfg.Closer = pool
	s := gormstore.New(db, cfg)
	must(tb, s.Validate())
	tb.Cleanup(func() { must(tb, s.Close()) })
	return s
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
	must(tb, appendTo(tb.Context(), s, recs...))
}

func appendTo(ctx context.Context, s *gormstore.Store, recs ...*storage.Record) error {
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
	must(tb, s.DB().WithContext(context.WithoutCancel(tb.Context())).Raw(query, args...).Row().Scan(&n))
	return n
}

func run(tb testing.TB, s *gormstore.Store, statements ...string) {
	tb.Helper()
	for _, q := range statements {
		must(tb, s.DB().Exec(q).Error)
	}
}
