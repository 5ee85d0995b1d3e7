package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
)

// BenchmarkModes compares how pgx may run the store's own statements.
func BenchmarkModes(b *testing.B) {
	for name, mode := range map[string]any{"prepared": nil, "exec": pgx.QueryExecModeExec, "describe": pgx.QueryExecModeCacheDescribe} {
		b.Run(name, func(b *testing.B) {
			s := onPool(b, newDatabase(b), gormstore.Config{Unprepared: mode})
			must(b, s.Migrate(b.Context()))
			for _, size := range []int{200, 2000} {
				for _, rows := range []int{1, 100, 500} {
					b.Run(fmt.Sprintf("%d rows of %d B", rows, size), func(b *testing.B) { wayOfRows(b, s, rows, size) })
				}
			}
		})
	}
}

// wayOfRows measures accepting, looking and settling.
func wayOfRows(b *testing.B, s *gormstore.Store, rows, size int) {
	b.Helper()
	m := join(b, s, storage.Inbox)
	var accept, look, settle time.Duration
	for i := 0; b.Loop(); i++ {
		recs := make([]*storage.Record, rows)
		done := make([]storage.Outcome, rows)
		for k := range recs {
			recs[k] = incoming(fmt.Sprint(m.Number(), " ", i, " ", k))
			recs[k].Body = make([]byte, size)
			done[k] = storage.Outcome{ID: recs[k].ID, Kind: storage.Succeed, After: time.Hour}
		}
		start := time.Now()
		_, err := m.Accept(b.Context(), recs...)
		must(b, err)
		accepted := time.Now()
		if got := due(b, m, inLane(500)); len(got) != rows {
			b.Fatal(len(got))
		}
		looked := time.Now()
		_, err = m.Settle(b.Context(), done...)
		must(b, err)
		accept, look, settle = accept+accepted.Sub(start), look+looked.Sub(accepted), settle+time.Since(looked)
	}
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(b.N) }
	b.ReportMetric(per(accept), "µs/accept")
	b.ReportMetric(per(look), "µs/due")
	b.ReportMetric(per(settle), "µs/settle")
}

// BenchmarkThrough sends 500 messages at a time through an outbox that keeps
// them, or not, and reports what they leave behind.
func BenchmarkThrough(b *testing.B) {
	for name, after := range map[string]time.Duration{"kept": time.Hour, "deleted": -1} {
		b.Run(name, func(b *testing.B) {
			s := newStore(b, quiet())
			m := join(b, s, storage.Outbox)
			recs := make([]*storage.Record, 500)
			done := make([]storage.Outcome, len(recs))
			for b.Loop() {
				for k := range recs {
					recs[k] = outgoing(m.Number())
					done[k] = storage.Outcome{ID: recs[k].ID, Kind: storage.Succeed, After: after}
				}
				publish(b, s, recs...)
				if got := due(b, m, outLane(500)); len(got) != len(recs) {
					b.Fatal(len(got))
				}
				_, err := m.Settle(b.Context(), done...)
				must(b, errors.Join(err, m.Beat(b.Context())))
			}
			b.ReportMetric(float64(b.N*len(recs))/b.Elapsed().Seconds(), "messages/s")
			start := time.Now()
			for range 100 {
				due(b, m, outLane(500))
			}
			b.ReportMetric(float64(time.Since(start).Microseconds())/100, "µs/look")
			start = time.Now()
			for range 100 {
				_, err := m.TakeOver(b.Context(), outLane(500))
				must(b, err)
			}
			b.ReportMetric(float64(time.Since(start).Microseconds())/100, "µs/orphans")
			for _, of := range []string{"", "_due", "_expiry", "_pkey", "_id_key"} {
				n := count(b, s, `SELECT pg_relation_size(?::regclass)`, "cap_published"+of)
				b.ReportMetric(float64(n)/(1<<20), "MB"+of)
			}
			b.ReportMetric(float64(count(b, s, `SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = 'cap_published'`)), "vacuums")
		})
	}
}

func quiet() postgres.Config {
	return postgres.Config{GORM: &gorm.Config{Logger: logger.Discard}}
}
