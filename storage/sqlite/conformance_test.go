package sqlite_test

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/libtnb/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/storagetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, func(tb testing.TB) storage.Storage {
		tb.Helper()
		return newStore(tb)
	})
}

// TestConformanceInMemory runs on a single connection for everything.
func TestConformanceInMemory(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, func(tb testing.TB) storage.Storage {
		tb.Helper()
		s := open(tb, ":memory:")
		must(tb, s.Migrate(tb.Context()))
		return s
	})
}

// TestConformanceOfAnOrdinaryPool: a *gorm.DB that the application opened, with
// many connections whose transactions are deferred.
func TestConformanceOfAnOrdinaryPool(t *testing.T) {
	t.Parallel()
	for _, prepare := range []bool{false, true} {
		t.Run("prepared="+strconv.FormatBool(prepare), func(t *testing.T) {
			t.Parallel()
			storagetest.Run(t, func(tb testing.TB) storage.Storage {
				tb.Helper()
				path := filepath.Join(tb.TempDir(), "cap.db") + "?_pragma=journal_mode(WAL)&_synchronous=NORMAL"
				db, err := gorm.Open(sqlite.Open(path), &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
				must(tb, err)
				s := gormstore.New(db, gormstore.Config{})
				tb.Cleanup(func() {
					must(tb, s.Close())
					pool, err := db.DB()
					must(tb, err)
					must(tb, pool.Close())
				})
				must(tb, s.Migrate(tb.Context()))
				return s
			})
		})
	}
}

func BenchmarkStorage(b *testing.B) {
	storagetest.Bench(b, func(b *testing.B) storage.Storage {
		b.Helper()
		return newStore(b)
	})
}
