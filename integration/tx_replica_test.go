package integration

import (
	"context"
	"testing"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestAReplicaIsNeverUsed by a store on a *gorm.DB with dbresolver: neither to
// find rows, which would not be there yet, nor to publish.
func TestAReplicaIsNeverUsed(t *testing.T) {
	t.Parallel()
	for _, db := range databases() {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			s := db.make(t)
			resolved := s.withReplica(t, s.openGORM(t, gorm.Config{}))
			store := gormstore.New(resolved, gormstore.Config{TablePrefix: "resolved_"})
			t.Cleanup(func() { must(t, store.Close()) })
			s.store = store
			var handled journal
			s.start(t, memqueue.New(memqueue.Config{}), subscribe.To("order.placed", gormstore.Handle(
				func(ctx context.Context, tx *gorm.DB, o order) error {
					var n int
					if err := tx.Raw("SELECT count(*) FROM orders").Scan(&n).Error; err != nil {
						return err
					}
					return handled.handle(ctx, o.ID)
				}), subscribe.Group("g")))
			must(t, resolved.Transaction(func(tx *gorm.DB) error {
				var n int
				if err := tx.Raw("SELECT count(*) FROM orders").Scan(&n).Error; err != nil {
					return err
				}
				return s.bus.Publish(t.Context(), tx, "order.placed", order{"1"})
			}))
			handled.wait(t, 1)
		})
	}
}
