package mysql_test

import (
	"context"
	"database/sql"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// BenchmarkPublish is a business transaction without and with a message, by 1
// and 8 writers, with and without interpolateParams.
func BenchmarkPublish(b *testing.B) {
	for _, params := range []string{"interpolateParams=true", "interpolateParams=false"} {
		s := open(b, dsn(b, newDatabase(b, ""), params))
		must(b, s.Migrate(b.Context()))
		must(b, s.DB().Exec("CREATE TABLE business (id BIGINT AUTO_INCREMENT PRIMARY KEY, v BLOB)").Error)
		for _, writers := range []int{1, 8} {
			for _, n := range []int{0, 1} {
				b.Run(params+"/writers="+strconv.Itoa(writers)+"/messages="+strconv.Itoa(n), func(b *testing.B) {
					publishMany(b, s, writers, n)
				})
			}
		}
	}
}

func publishMany(b *testing.B, s *gormstore.Store, writers, messages int) {
	b.Helper()
	pool, err := s.DB().DB()
	must(b, err)
	body := make([]byte, 256)
	b.SetParallelism(max(writers/2, 1)) // of two CPUs
	var busy atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		if busy.Add(1) > int64(writers) {
			return
		}
		for pb.Next() {
			if err := publishOne(pool, s, body, messages); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
}

func publishOne(pool *sql.DB, s storage.Storage, body []byte, messages int) error {
	ctx := context.Background()
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err = tx.ExecContext(ctx, "INSERT INTO business (v) VALUES (?)", body); err != nil {
		return err
	}
	if messages > 0 {
		w, err := s.Bind(tx)
		if err != nil {
			return err
		}
		rec := outgoing(7)
		rec.Body = body
		if err := w.Append(ctx, rec); err != nil {
			return err
		}
	}
	return tx.Commit()
}

const batch = 500

// BenchmarkBatch is what the engines do with a batch of 500, step by step.
func BenchmarkBatch(b *testing.B) {
	s := newStore(b)
	m, in := join(b, s, storage.Outbox), join(b, s, storage.Inbox)
	took := map[string]time.Duration{}
	step := func(name string, f func()) {
		begun := time.Now()
		f()
		took[name] += time.Since(begun)
	}
	for b.Loop() {
		recs, received := make([]*storage.Record, batch), make([]*storage.Record, batch)
		sent, failed, kept := make([]storage.Outcome, batch), make([]storage.Outcome, batch), make([]storage.Outcome, batch)
		for i := range recs {
			recs[i], received[i] = outgoing(m.Number()), incoming(storage.ID(ids.New()).String())
			recs[i].Body, received[i].Body = make([]byte, 256), make([]byte, 256)
			sent[i] = storage.Outcome{ID: recs[i].ID, Kind: storage.Succeed, After: time.Hour}
			failed[i] = storage.Outcome{ID: received[i].ID, Kind: storage.Retry, Attempt: 1, After: time.Hour, Error: "connection refused"}
			kept[i] = storage.Outcome{ID: received[i].ID, Kind: storage.Succeed, After: time.Hour}
		}
		step("append", func() { publish(b, s, recs...) })
		step("due", func() { due(b, m, outLane(batch)) })
		step("succeed", func() { settled(b, m, sent) })
		step("accept", func() {
			fresh, err := in.Accept(b.Context(), received...)
			if err != nil || len(fresh) != batch {
				b.Fatal(err, len(fresh))
			}
		})
		step("again", func() {
			fresh, err := in.Accept(b.Context(), received...)
			if err != nil || len(fresh) != 0 {
				b.Fatal(err, len(fresh))
			}
		})
		step("retry", func() { settled(b, in, failed) })
		step("handled", func() { settled(b, in, kept) })
	}
	for name, d := range took {
		b.ReportMetric(float64(d.Microseconds())/float64(b.N)/1000, "ms/"+name)
	}
}

func settled(b *testing.B, m storage.Member, outcomes []storage.Outcome) {
	b.Helper()
	lost, err := m.Settle(b.Context(), outcomes...)
	if err != nil || len(lost) > 0 {
		b.Fatal(lost, err)
	}
}

// BenchmarkIdle is what a member with nothing to do costs.
func BenchmarkIdle(b *testing.B) {
	s := newStore(b)
	m := join(b, s, storage.Outbox)
	b.Run("due", func(b *testing.B) {
		for b.Loop() {
			due(b, m, outLane(batch))
		}
	})
	b.Run("takeover", func(b *testing.B) {
		for b.Loop() {
			_, err := m.TakeOver(b.Context(), outLane(batch))
			must(b, err)
		}
	})
}

// BenchmarkHandlerTransaction is an inbox transaction with one write in it.
func BenchmarkHandlerTransaction(b *testing.B) {
	s := newStore(b)
	m := join(b, s, storage.Inbox)
	must(b, s.DB().Exec("CREATE TABLE business (id BIGINT AUTO_INCREMENT PRIMARY KEY, v BLOB)").Error)
	for b.Loop() {
		b.StopTimer()
		rec := incoming(storage.ID(ids.New()).String())
		_, err := m.Accept(b.Context(), rec)
		must(b, err)
		b.StartTimer()
		tx, err := s.Begin(b.Context())
		must(b, err)
		must(b, tx.Value().(*gorm.DB).Exec("INSERT INTO business (v) VALUES (x'00')").Error)
		must(b, tx.Settle(b.Context(), m, storage.Outcome{ID: rec.ID, Kind: storage.Succeed, After: time.Hour}))
		must(b, tx.Commit())
	}
}
