package memstore_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("a store each", func(t *testing.T) {
		t.Parallel()
		storagetest.Run(t, func(testing.TB) storage.Storage { return memstore.New(memstore.Config{}) })
	})
	t.Run("one store for all", func(t *testing.T) {
		t.Parallel()
		store := memstore.New(memstore.Config{})
		storagetest.Run(t, func(testing.TB) storage.Storage { return store })
	})
}

func BenchmarkStorage(b *testing.B) {
	storagetest.Bench(b, func(*testing.B) storage.Storage { return memstore.New(memstore.Config{}) })
}
