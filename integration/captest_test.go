package integration

import (
	"context"
	"path/filepath"
	"testing"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/cap/captest"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
)

// TestCaptestOnADatabase: handlers that use gorm are tested on SQLite, in a file
// or in memory.
func TestCaptestOnADatabase(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"file": filepath.Join(t.TempDir(), "test.db"), "memory": ":memory:"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := sqlite.Open(path, sqlite.Config{})
			must(t, err)
			t.Cleanup(func() { must(t, store.Close()) })
			must(t, store.DB().Exec("CREATE TABLE charges (id TEXT)").Error)
			bus := captest.NewWith(t, func(o *cap.Options) { o.Storage = store },
				subscribe.To("order.placed", gormstore.Handle(func(ctx context.Context, tx *gorm.DB, o order) error {
					if err := tx.Exec("INSERT INTO charges VALUES (?)", o.ID).Error; err != nil {
						return err
					}
					return cap.Publish(ctx, nil, "order.charged", o)
				})))
			must(t, store.DB().Transaction(func(tx *gorm.DB) error {
				return bus.Publish(t.Context(), tx, "order.placed", order{"7"})
			}))
			captest.Drain(t, bus)
			if got := captest.RequirePublished[order](t, bus, "order.charged"); got.ID != "7" {
				t.Errorf("charged: %+v", got)
			}
			if n := number(t, store.DB(), "SELECT count(*) FROM charges"); n != 1 {
				t.Errorf("%d charges, want 1", n)
			}
		})
	}
}
