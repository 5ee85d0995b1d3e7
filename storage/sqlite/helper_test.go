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
	if f := children[os.Getenv("GOCAP_TEST_CHILD")]; f != nil {
		f()
		return
	}
	// The cache of gorm's PrepareStmt mode never ends its goroutine.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

// children are what this program does when a test runs it as another process.
var children = map[string]func(){"publish": publishingChild}

const version = "v1"

func open(t testing.TB, path string, change ...func(*sqlite.Config)) *gormstore.Store {
	t.Helper()
	cfg := sqlite.Config{GORM: &gorm.Config{Logger: logger.Discard}}
	for _, f := range change {
		f(&cfg)
	}
	s, err := sqlite.Open(path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// newStore opens a store on a new file, with its tables.
func newStore(t testing.TB, change ...func(*sqlite.Config)) *gormstore.Store {
	t.Helper()
	s := open(t, filepath.Join(t.TempDir(), "cap.db"), change...)
	must(t, s.Migrate(t.Context()))
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func join(t testing.TB, s *gormstore.Store, b storage.Box) storage.Member {
	t.Helper()
	m, err := s.Join(t.Context(), storage.Instance{Box: b, Version: version, Lease: time.Minute})
	must(t, err)
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
func publish(t testing.TB, s *gormstore.Store, recs ...*storage.Record) {
	t.Helper()
	must(t, s.DB().Transaction(func(tx *gorm.DB) error {
		w, err := s.Bind(tx)
		if err != nil {
			return err
		}
		return w.Append(context.Background(), recs...)
	}))
}

func due(t testing.TB, m storage.Member, q storage.Query) []*storage.Record {
	t.Helper()
	recs, _, err := m.Due(t.Context(), q)
	must(t, err)
	return recs
}

func outLane(limit int) storage.Query { return storage.Query{Lanes: []storage.Lane{{Limit: limit}}} }

func inLane(limit int) storage.Query {
	return storage.Query{Lanes: []storage.Lane{{Group: "g", Subscriber: "s", Limit: limit}}}
}

func count(t testing.TB, s *gormstore.Store, query string, args ...any) int {
	t.Helper()
	var n int
	must(t, s.DB().Raw(query, args...).Row().Scan(&n))
	return n
}
