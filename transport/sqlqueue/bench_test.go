package sqlqueue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/sqlqueue"
)

// backlogs are those that drain at the same rate.
func backlogs() []int { return []int{1_000, 10_000, 100_000} }

// BenchmarkDrain takes and acks what waits for one receiver. Alone, beside a
// session with an old snapshot, which keeps dead rows alive, and for two groups.
// The rate is from the first batch to the last one, so that connecting does not
// count.
func BenchmarkDrain(b *testing.B) {
	for _, n := range backlogs() {
		b.Run(fmt.Sprintf("backlog=%d", n), func(b *testing.B) { benchDrain(b, n, false, "g") })
	}
	for _, n := range backlogs() {
		b.Run(fmt.Sprintf("old-snapshot/backlog=%d", n), func(b *testing.B) { benchDrain(b, n, true, "g") })
	}
	for _, n := range backlogs() {
		b.Run(fmt.Sprintf("two-groups/backlog=%d", n), func(b *testing.B) { benchDrain(b, n, false, "g", "h") })
	}
}

func benchDrain(b *testing.B, n int, snapshot bool, groups ...string) {
	b.Helper()
	dsn := newDatabase(b)
	tr := open(b, sqlqueue.Config{DSN: dsn})
	for _, g := range groups {
		must(b, tr.Declare(b.Context(), source(g, 500)))
	}
	var took time.Duration
	taken := 0
	for b.Loop() {
		b.StopTimer()
		fill(b, tr, n)
		end := func() {}
		if snapshot {
			end = oldSnapshot(b, dsn)
		}
		b.StartTimer()
		done := make(chan error)
		spans := make(chan time.Duration, len(groups))
		for _, g := range groups {
			go func() { done <- takeAll(b.Context(), tr, source(g, 500), n, spans) }()
		}
		for range groups {
			must(b, <-done)
			took += <-spans
			taken += n - 500
		}
		end()
	}
	b.ReportMetric(float64(taken)/(took.Seconds()/float64(len(groups))), "msgs/s")
}

func fill(tb testing.TB, tr *sqlqueue.Transport, n int) {
	tb.Helper()
	body := make([]byte, 500)
	for sent := 0; sent < n; {
		msgs := make([]*transport.Message, min(500, n-sent))
		for i := range msgs {
			msgs[i] = &transport.Message{ID: fmt.Sprint(sent + i), Topic: "a.b", Body: body}
		}
		for _, err := range tr.Send(tb.Context(), msgs) {
			must(tb, err)
		}
		sent += len(msgs)
	}
}

// takeAll receives and acks n messages, and tells how long it took from the first
// batch to the last.
func takeAll(ctx context.Context, tr *sqlqueue.Transport, src transport.Source, n int, span chan<- time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var began time.Time
	return tr.Receive(ctx, src, func(_ context.Context, batch []transport.Delivery) {
		for _, d := range batch {
			_ = d.Ack()
		}
		if began.IsZero() {
			began = time.Now()
		}
		if n -= len(batch); n == 0 {
			span <- time.Since(began)
			cancel()
		}
	})
}

// oldSnapshot is a session that has looked and does nothing more, as a backup.
func oldSnapshot(tb testing.TB, dsn string) func() {
	tb.Helper()
	d := db(tb, dsn)
	tx, err := d.BeginTx(tb.Context(), nil)
	must(tb, err)
	_, err = tx.ExecContext(tb.Context(), `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
	must(tb, err)
	_, err = tx.ExecContext(tb.Context(), `SELECT txid_current()`)
	must(tb, err)
	return func() { must(tb, tx.Rollback()) }
}

// BenchmarkDefaultAdapters is BenchmarkDrain with watermill-sql as it comes.
func BenchmarkDefaultAdapters(b *testing.B) {
	for _, n := range backlogs() {
		b.Run(fmt.Sprintf("backlog=%d", n), func(b *testing.B) { benchDefault(b, n) })
	}
}

func benchDefault(b *testing.B, n int) {
	b.Helper()
	d := db(b, newDatabase(b))
	schema := wmsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }, SubscribeBatchSize: 500}
	pub, err := wmsql.NewPublisher(d, wmsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, nil)
	must(b, err)
	sub, err := wmsql.NewSubscriber(d, wmsql.SubscriberConfig{
		ConsumerGroup: "g", SchemaAdapter: schema, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
		PollInterval: 10 * time.Millisecond,
	}, nil)
	must(b, err)
	defer sub.Close() //nolint:errcheck // it returns nil
	must(b, sub.SubscribeInitialize("t"))
	body := make([]byte, 500)
	for b.Loop() {
		b.StopTimer()
		for sent := 0; sent < n; sent += 500 {
			msgs := make([]*message.Message, 500)
			for i := range msgs {
				msgs[i] = message.NewMessage(fmt.Sprint(sent+i), body)
			}
			must(b, pub.Publish("t", msgs...))
		}
		b.StartTimer()
		ctx, cancel := context.WithCancel(b.Context())
		c, err := sub.Subscribe(ctx, "t")
		must(b, err)
		for range n {
			(<-c).Ack()
		}
		cancel()
		for m := range c {
			m.Nack()
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "msgs/s")
}
