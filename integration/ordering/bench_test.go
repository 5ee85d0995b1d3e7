package ordering

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// BenchmarkThroughput sends and handles b.N messages that are there already,
// without keys, over 1,000 keys and over one: go test -bench Throughput
// -benchtime 10000x.
func BenchmarkThroughput(b *testing.B) {
	for _, on := range []string{"sqlite", "postgres"} {
		for _, keys := range []int{0, 1000, 1} {
			b.Run(fmt.Sprintf("%s/keys=%d", on, keys), func(b *testing.B) { throughput(b, on, keys) })
		}
	}
}

func throughput(b *testing.B, on string, keys int) {
	b.Helper()
	db := filepath.Join(b.TempDir(), "order.db")
	if on == "postgres" {
		db = newDatabase(b)
	}
	store, err := open(db)
	must(b, err)
	defer func() { must(b, store.Close()) }()
	var handled atomic.Int64
	all := make(chan struct{})
	var opts []subscribe.Option
	if keys > 0 {
		opts = append(opts, subscribe.Ordered())
	}
	bus, err := cap.New(cap.Options{
		Storage: store, Transport: memqueue.New(memqueue.Config{}), Registry: &subscribe.Registry{},
		Subscriptions: []subscribe.Subscription{subscribe.To("turn", func(context.Context, turn) error {
			if handled.Add(1) == int64(b.N) {
				close(all)
			}
			return nil
		}, append(opts, subscribe.Group("ordering"))...)},
		Logger: slog.New(slog.DiscardHandler), Concurrency: 8,
	})
	must(b, err)
	must(b, bus.Migrate(b.Context()))
	for n := 0; n < b.N; n += 500 {
		msgs := make([]cap.Outgoing, min(500, b.N-n))
		for i := range msgs {
			msgs[i] = cap.Outgoing{Topic: "turn", Msg: turn{"", n + i}}
			if keys > 0 {
				msgs[i].Opts = []cap.PublishOption{cap.WithKey(fmt.Sprint((n + i) % keys))}
			}
		}
		must(b, store.DB().WithContext(b.Context()).Transaction(func(tx *gorm.DB) error { return bus.PublishMany(b.Context(), tx, msgs...) }))
	}
	b.ResetTimer()
	must(b, bus.Start(b.Context()))
	<-all
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), 20*time.Second)
	defer cancel()
	must(b, bus.Stop(ctx))
}
