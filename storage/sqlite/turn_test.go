package sqlite_test

import (
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage/sqlite"
)

// TestWritersTakeTurns: who came first writes first, so that nobody, such as a
// heartbeat, starves behind an application that writes a lot. Writers who ask
// again at once get equal shares then; served at random they would differ by
// about 24.
func TestWritersTakeTurns(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "turns.db"), sqlite.Config{Synchronous: "NORMAL"})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	const writers, all = 20, 800
	var total atomic.Int64
	var shares [writers]int
	var wg sync.WaitGroup
	held := s.DB().Begin()
	must(t, held.Error)
	for i := range writers {
		wg.Go(func() {
			for total.Add(1) <= all {
				if err := s.DB().Transaction(func(*gorm.DB) error { return nil }); err != nil {
					t.Error(err)
				}
				shares[i]++
			}
		})
	}
	must(t, held.Rollback().Error)
	wg.Wait()
	if least, most := slices.Min(shares[:]), slices.Max(shares[:]); most-least > 8 {
		t.Errorf("shares of %v", shares)
	}
}
