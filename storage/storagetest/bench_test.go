package storagetest

import (
	"testing"

	"github.com/capbus/gocap/storage/memstore"
)

// TestBenchmarksDoWhatTheyMeasure: each runs, twice.
func TestBenchmarksDoWhatTheyMeasure(t *testing.T) {
	t.Parallel()
	for _, op := range benchOps() {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			run := op.prepare(newEnv(t, memstore.New(memstore.Config{}), configOf(nil)), 3)
			run()
			run()
		})
	}
}
