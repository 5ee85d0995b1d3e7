package sqlite_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		publishingChild(path)
		return
	}
	// The cache of gorm's PrepareStmt mode never ends its goroutine.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

const version = "v1"

func open(tb testing.TB, path string, change ...func(*sqlite.Config)) *gormstore.Store {
	tb.Helper()
	cfg := sqlite.Config{GORM: &gorm.Config{Logger: logger.Discard}}
	for _, f := range change {
		f(&cfg)
	}
	s, err := sqlite.Open(path, cfg)
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

// newStore opens a store on a new file, with its tables.
func newStore(tb testing.TB, change ...func(*sqlite.Config)) *gormstore.Store {
	tb.Helper()
	s := open(tb, filepath.Join(tb.TempDir(), "cap.db"), change...)
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
	must(tb, s.DB().Raw(query, args...).Row().Scan(&n))
	return n
}
