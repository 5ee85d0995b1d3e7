package sqlite_test

import (
	"testing"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/storagetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, func(t testing.TB) storage.Storage { return newStore(t) })
}
