package sqlite_test

import (
	"context"
	"database/sql"
	"strconv"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/sqlite"
)

func normal(c *sqlite.Config) { c.Synchronous = "NORMAL" }

// BenchmarkBegin is what the bounded waiting costs: an empty transaction of the
// store's pool against one of the plain *sql.DB.
func BenchmarkBegin(b *testing.B) {
	s := newStore(b, normal)
	pool := s.DB().ConnPool.(gorm.TxBeginner)
	plain, err := s.DB().DB()
	must(b, err)
	for _, c := range []struct {
		name string
		pool gorm.TxBeginner
	}{{"bounded", pool}, {"plain", plain}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				tx, err := c.pool.BeginTx(b.Context(), nil)
				must(b, err)
				must(b, tx.Commit())
			}
		})
	}
}

// BenchmarkPublish is a business transaction without and with a message.
func BenchmarkPublish(b *testing.B) {
	for _, sync := range []string{"NORMAL", "FULL"} {
		s := newStore(b, func(c *sqlite.Config) { c.Synchronous = sync })
		must(b, s.DB().Exec("CREATE TABLE business (id INTEGER PRIMARY KEY, v BLOB)").Error)
		join(b, s, storage.Outbox)
		body := make([]byte, 256)
		for _, n := range []int{0, 1} {
			b.Run(sync+"/sql/messages="+strconv.Itoa(n), func(b *testing.B) {
				for b.Loop() {
					tx, err := s.DB().ConnPool.(gorm.TxBeginner).BeginTx(b.Context(), nil)
					must(b, err)
					_, err = tx.Exec("INSERT INTO business (v) VALUES (?)", body)
					must(b, err)
					if n > 0 {
						must(b, appendOne(s, tx, body))
					}
					must(b, tx.Commit())
				}
			})
			b.Run(sync+"/gorm/messages="+strconv.Itoa(n), func(b *testing.B) {
				type Business struct {
					ID int64
					V  []byte
				}
				for b.Loop() {
					must(b, s.DB().Transaction(func(tx *gorm.DB) error {
						if err := tx.Table("business").Create(&Business{V: body}).Error; err != nil || n == 0 {
							return err
						}
						return appendOne(s, tx, body)
					}))
				}
			})
		}
	}
}

func appendOne(s storage.Storage, tx any, body []byte) error {
	w, err := s.Bind(tx)
	if err != nil {
		return err
	}
	return w.Append(context.Background(), &storage.Record{
		ID: ids.New(), Version: version, Topic: "orders.created", Owner: 7, Headers: []byte(`{"a":"b"}`), Body: body,
	})
}

const batch = 500

// BenchmarkRelay appends, reads and settles a batch of 500.
func BenchmarkRelay(b *testing.B) {
	s := newStore(b)
	m := join(b, s, storage.Outbox)
	for b.Loop() {
		recs := make([]*storage.Record, batch)
		for i := range recs {
			recs[i] = outgoing(m.Number())
			recs[i].Body = make([]byte, 256)
		}
		publish(b, s, recs...)
		got := due(b, m, outLane(batch))
		outcomes := make([]storage.Outcome, len(got))
		for i, r := range got {
			outcomes[i] = storage.Outcome{ID: r.ID, Kind: storage.Succeed, After: time.Hour}
		}
		lost, err := m.Settle(b.Context(), outcomes...)
		if err != nil || len(lost) > 0 || len(got) != batch {
			b.Fatal(lost, err, len(got))
		}
	}
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkReceive accepts, reads and settles a batch of 500.
func BenchmarkReceive(b *testing.B) {
	s := newStore(b)
	m := join(b, s, storage.Inbox)
	n := 0
	for b.Loop() {
		recs := make([]*storage.Record, batch)
		outcomes := make([]storage.Outcome, len(recs))
		for i := range recs {
			n++
			recs[i] = incoming(strconv.Itoa(n))
			recs[i].Body = make([]byte, 256)
			outcomes[i] = storage.Outcome{ID: recs[i].ID, Kind: storage.Succeed, After: time.Hour}
		}
		fresh, err := m.Accept(b.Context(), recs...)
		if err != nil || len(fresh) != batch {
			b.Fatal(err, len(fresh))
		}
		lost, err := m.Settle(b.Context(), outcomes...)
		if err != nil || len(lost) > 0 {
			b.Fatal(lost, err)
		}
	}
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "messages/s")
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
	must(b, s.DB().Exec("CREATE TABLE business (id INTEGER PRIMARY KEY, v BLOB)").Error)
	n := 0
	for b.Loop() {
		b.StopTimer()
		n++
		rec := incoming(strconv.Itoa(n))
		_, err := m.Accept(b.Context(), rec)
		must(b, err)
		b.StartTimer()
		tx, err := s.Begin(b.Context())
		must(b, err)
		_, err = tx.Value().(*gorm.DB).Statement.ConnPool.(*sql.Tx).Exec("INSERT INTO business (v) VALUES (x'00')")
		must(b, err)
		must(b, tx.Settle(b.Context(), m, storage.Outcome{ID: rec.ID, Kind: storage.Succeed, After: time.Hour}))
		must(b, tx.Commit())
	}
}
