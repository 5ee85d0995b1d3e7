package integration

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC143ModesOfTheDriver: the whole way of messages, with retries, a delay, keys,
// locks and the collector, in each mode in which pgx can send a statement.
func TestC143ModesOfTheDriver(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(postgresDatabase(t))
			must(t, err)
			u.RawQuery = "sslmode=disable&default_query_exec_mode=" + mode
			store := postgresStore(t, u.String(), 8)
			bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}), serving(
				inGroup("order", gormstore.Handle(func(ctx context.Context, tx *gorm.DB, o order) error {
					if err := tx.Exec("INSERT INTO effects VALUES (?)", o.ID).Error; err != nil {
						return err
					}
					if info, _ := cap.InfoFromContext(ctx); info.Attempt < 3 {
						return errRollback
					}
					return nil
				}), subscribe.Ordered())), func(o *cap.Options) {
				o.UseStorageLock, o.FallbackWindow = true, window
				o.SucceedMessageExpiredAfter, o.CollectorCleaningInterval = time.Second, 100*time.Millisecond
			}))
			for i := range 10 {
				with := []cap.PublishOption{cap.WithKey(fmt.Sprint(i % 2)), cap.WithHeader("h", `{"ж": "\"}`)}
				if i%3 == 0 {
					with = []cap.PublishOption{cap.WithDelay(200 * time.Millisecond)}
				}
				must(t, store.DB().Transaction(func(tx *gorm.DB) error {
					if err := tx.Exec("INSERT INTO orders VALUES (?)", fmt.Sprint(i)).Error; err != nil {
						return err
					}
					return bus.Publish(t.Context(), tx, "order", order{fmt.Sprint(i)}, with...)
				}))
			}
			effects := "SELECT count(*) FROM effects"
			eventually(t, "all have been handled", func() bool { return number(t, store.DB(), effects) == 10 })
			settled(t, store.DB(), window)
			eachOnce(t, store.DB())
			if bad := column(t, store.DB(), "SELECT last_error FROM cap_received WHERE status <> 2"); len(bad) > 0 {
				t.Errorf("failed: %q", bad)
			}
			eventually(t, "all rows have expired", func() bool {
				return number(t, store.DB(), "SELECT (SELECT count(*) FROM cap_published) + (SELECT count(*) FROM cap_received)") == 0
			})
		})
	}
}
