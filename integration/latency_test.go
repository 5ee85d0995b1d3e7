package integration

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// BenchmarkCommitToHandler measures, at 100 messages a second, the time from
// before COMMIT until the handler runs, on SQLite (synchronous FULL) and
// memqueue. Run it with -benchtime=1000x.
func BenchmarkCommitToHandler(b *testing.B) {
	store, err := sqlite.Open(filepath.Join(b.TempDir(), "shop.db"), sqlite.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // the benchmark is over
	var mu sync.Mutex
	var took []time.Duration
	handled := make(chan struct{}, 1000)
	bus, err := cap.New(cap.Options{
		Storage: store, Transport: memqueue.New(memqueue.Config{}), Registry: &subscribe.Registry{},
		Subscriptions: []subscribe.Subscription{subscribe.To("tick", func(_ context.Context, at time.Time) error {
			d := time.Since(at)
			mu.Lock()
			took = append(took, d)
			mu.Unlock()
			handled <- struct{}{}
			return nil
		}, subscribe.Group("g"))},
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := bus.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer bus.Stop(b.Context()) //nolint:errcheck // the benchmark is over
	if err := store.DB().Exec("CREATE TABLE business (n INTEGER)").Error; err != nil {
		b.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for b.Loop() {
		<-tick.C
		err := store.DB().Transaction(func(tx *gorm.DB) error {
			if err := tx.Exec("INSERT INTO business VALUES (1)").Error; err != nil {
				return err
			}
			return bus.Publish(b.Context(), tx, "tick", time.Now())
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	for range b.N {
		<-handled
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
