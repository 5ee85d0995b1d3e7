package storagetest

import (
	"strconv"
	"testing"

	"github.com/capbus/gocap/storage"
)

// Bench measures what the engines do with a storage, so that storages, and
// changes of one, can be compared. Each operation is on a batch, and reports
// rows a second; figures of different machines or moments mean little.
func Bench(b *testing.B, open func(b *testing.B) storage.Storage) {
	b.Helper()
	for _, batch := range []int{1, 500} {
		for _, op := range benchOps() {
			b.Run(op.name+"/rows="+strconv.Itoa(batch), func(b *testing.B) {
				e := newEnv(b, open(b), configOf(nil))
				run := op.prepare(e, batch)
				b.ResetTimer()
				for b.Loop() {
					run()
				}
				b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

// benchOp returns, for a batch of n rows, what is measured. What an operation
// needs of others is done outside of the clock.
type benchOp struct {
	name    string
	prepare func(e *env, n int) func()
}

func benchOps() []benchOp {
	return []benchOp{
		{"append", func(e *env, n int) func() {
			m := e.join(storage.Outbox)
			return func() { e.publish(e.messages(n, m)...) }
		}},
		{"accept", func(e *env, n int) func() {
			m := e.join(storage.Inbox)
			return func() { e.accept(m, e.deliveries(n, "g", "s")...) }
		}},
		{"due", func(e *env, n int) func() {
			m := e.join(storage.Outbox)
			e.publish(e.messages(n, m)...)
			q := allOf("", "")
			return func() { e.due(m, q) }
		}},
		{"settle", func(e *env, n int) func() {
			m := e.join(storage.Outbox)
			return func() {
				outcomes := make([]storage.Outcome, n)
				e.untimed(func() {
					recs := e.messages(n, m)
					e.publish(recs...)
					for i, r := range recs {
						outcomes[i] = succeed(r)
					}
				})
				e.mustSettle(m, outcomes...)
			}
		}},
		{"takeover", func(e *env, n int) func() {
			heir, q := e.join(storage.Outbox), allOf("", "")
			return func() {
				e.untimed(func() { e.publish(e.messages(n, nil)...) })
				e.mustRowCount(e.takeOver(heir, q), n)
			}
		}},
		{"purge", func(e *env, n int) func() {
			m := e.join(storage.Outbox)
			outcomes := make([]storage.Outcome, n)
			return func() {
				e.untimed(func() {
					recs := e.messages(n, m)
					e.publish(recs...)
					for i, r := range recs {
						outcomes[i] = storage.Outcome{ID: r.ID, Kind: storage.Succeed} // expired at once
					}
					e.mustSettle(m, outcomes...)
				})
				for deleted := 0; deleted < n; {
					deleted += e.purge(storage.Outbox, n)
				}
			}
		}},
	}
}

// untimed runs f outside of the clock of a benchmark.
func (e *env) untimed(f func()) {
	if b, ok := e.TB.(*testing.B); ok {
		b.StopTimer()
		defer b.StartTimer()
	}
	f()
}

func (e *env) mustRowCount(recs []*storage.Record, n int) {
	e.Helper()
	if len(recs) != n {
		e.Fatalf("%d rows, want %d", len(recs), n)
	}
}
