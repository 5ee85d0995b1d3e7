package pgxtx_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/pgxtx"
)

// BenchmarkTracer is what the Tracer adds to a query, without the query.
func BenchmarkTracer(b *testing.B) {
	ctx := b.Context()
	conn := connect(b, traced(newDatabase(b)))
	start, tracer := pgx.TraceQueryStartData{SQL: "INSERT INTO t (n, s) VALUES ($1, $2)"}, pgxtx.Tracer{}
	run := func(b *testing.B) {
		b.Helper()
		b.ReportAllocs()
		for b.Loop() {
			tracer.TraceQueryEnd(tracer.TraceQueryStart(ctx, conn, start), conn, pgx.TraceQueryEndData{})
		}
	}
	b.Run("unwatched", run)
	tx, err := conn.Begin(ctx)
	must(b, err)
	bind(b, tx)
	b.Run("watched", run)
	must(b, tx.Rollback(ctx))
}

// BenchmarkQuery is a whole query, with and without.
func BenchmarkQuery(b *testing.B) {
	cfg := newDatabase(b)
	for name, cfg := range map[string]*pgx.ConnConfig{"traced": traced(cfg), "plain": cfg} {
		b.Run(name, func(b *testing.B) {
			conn := connect(b, cfg)
			for b.Loop() {
				_, err := conn.Exec(b.Context(), "SELECT $1::bigint", int64(1))
				must(b, err)
			}
		})
	}
}

// BenchmarkBind is what a publish pays beside its statement.
func BenchmarkBind(b *testing.B) {
	cfg := newDatabase(b)
	for name, cfg := range map[string]*pgx.ConnConfig{"traced": traced(cfg), "plain": cfg} {
		b.Run(name, func(b *testing.B) {
			tx, err := connect(b, cfg).Begin(b.Context())
			must(b, err)
			b.ReportAllocs()
			for b.Loop() {
				bind(b, tx)
			}
		})
	}
}

// BenchmarkTold measures from when Commit has returned to when another goroutine
// has been told, and how much sooner than Commit returned OnEnd was called.
func BenchmarkTold(b *testing.B) {
	ctx := b.Context()
	pool := newPool(b, traced(newDatabase(b)))
	told := make(chan time.Time, 1)
	heard := make(chan time.Time, 1)
	go func() {
		for range told {
			heard <- time.Now()
		}
		close(heard)
	}()
	var late, early []time.Duration
	for b.Loop() {
		tx, err := pool.Begin(ctx)
		must(b, err)
		var called time.Time
		bind(b, tx).(storage.EndNotifier).OnEnd(func(bool) {
			called = time.Now()
			told <- called
		})
		_, err = tx.Exec(ctx, "INSERT INTO t (s) VALUES ('a')")
		must(b, err)
		must(b, tx.Commit(ctx))
		returned := time.Now()
		late = append(late, (<-heard).Sub(returned))
		early = append(early, returned.Sub(called))
	}
	close(told)
	<-heard
	for name, of := range map[string][]time.Duration{"after-commit": late, "before-return": early} {
		slices.Sort(of)
		b.ReportMetric(float64(of[len(of)/2].Nanoseconds()), "p50-ns-"+name)
		b.ReportMetric(float64(of[len(of)*99/100].Nanoseconds()), "p99-ns-"+name)
	}
}
