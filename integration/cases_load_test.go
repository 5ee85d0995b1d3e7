package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC028NoTransactionWhileSending: while sends hang, the engine has no
// transaction open in the database, and no connection in use.
func TestC028NoTransactionWhileSending(t *testing.T) {
	t.Parallel()
	for _, db := range databases() {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			s := db.make(t)
			q := memqueue.New(memqueue.Config{})
			var fast, slow journal
			bus := begun(t, made(t, s.store, q, serving(inGroup("fast", fast.handle), inGroup("slow", slow.handle))))
			hang := make(chan struct{})
			release := sync.OnceFunc(func() { close(hang) })
			t.Cleanup(release)
			var hanging atomic.Int32
			q.SetFaults(memqueue.Faults{Refuse: func(m *transport.Message) error {
				if m.Topic == "slow" {
					hanging.Add(1)
					<-hang
				}
				return nil
			}})
			stuck := publishAll(t, bus, "slow", 0, 10)
			eventually(t, "a send hangs", func() bool { return hanging.Load() > 0 })
			fast.waitFor(t, publishAll(t, bus, "fast", 0, 200))
			pool, err := s.store.DB().DB()
			must(t, err)
			eventually(t, "no connection is in use", func() bool { return pool.Stats().InUse == 0 })
			if query := map[string]string{
				"postgres": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start < clock_timestamp() - interval '1 second'",
				"mariadb":  "SELECT count(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id WHERE p.db = database() AND t.trx_started < now() - interval 1 second",
			}[db.name]; query != "" {
				<-time.After(1500 * time.Millisecond)
				if n := number(t, s.store.DB(), query); n != 0 {
					t.Errorf("%d transactions are open for more than a second", n)
				}
			}
			release()
			slow.waitFor(t, stuck)
			settled(t, s.store.DB(), window)
		})
	}
}

// TestC057PublishWhileCleaning: a history that has expired all at once is deleted
// in parts while messages are published and handled; nobody waits long for that,
// and nothing else is deleted.
func TestC057PublishWhileCleaning(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, store *gormstore.Store) {
		t.Helper()
		expired := 20_000
		if store.DB().Name() == "sqlite" { // 20 times as slow under the race detector
			expired = 2000
		}
		var j journal
		q := memqueue.New(memqueue.Config{})
		bus := made(t, store, q, serving(inGroup("t", j.handle)), func(o *cap.Options) {
			o.CollectorCleaningInterval, o.CollectorBatchSize = 50*time.Millisecond, 500
		})
		must(t, bus.Migrate(t.Context()))
		must(t, store.DB().Exec(history(store.DB()), expired).Error)
		begun(t, bus)
		var took []time.Duration
		var want []string
		for i := 0; number(t, store.DB(), "SELECT count(*) FROM cap_published WHERE name = 'old'") > 0 || i < 50; i++ {
			since := time.Now()
			must(t, bus.Publish(t.Context(), cap.NoTx, "t", fmt.Sprint(i)))
			took = append(took, time.Since(since))
			want = append(want, fmt.Sprint(i))
		}
		j.wait(t, len(want))
		settled(t, store.DB(), window)
		j.exactly(t, want)
		if n := number(t, store.DB(), "SELECT count(*) FROM cap_published"); n != len(want) {
			t.Errorf("%d rows are left, want %d", n, len(want))
		}
		slices.Sort(took)
		t.Logf("%d publishes beside the cleaning: half within %s, the slowest %s", len(took), took[len(took)/2], took[len(took)-1])
		if most := took[len(took)-1]; most > 5*time.Second { // on a machine that is busy with other tests
			t.Errorf("a publish took %s", most)
		}
	})
}

// history inserts so many rows that expired long ago.
func history(db *gorm.DB) string {
	const columns = "INSERT INTO cap_published (id, version, name, status, added_at, updated_at, expires_at, headers, body) "
	switch db.Name() {
	case "postgres":
		return columns + "SELECT gen_random_uuid(), 'v1', 'old', 2, 'epoch', 'epoch', 'epoch', '', '' FROM generate_series(1, ?)"
	case "mysql":
		return strings.Replace(columns, "body", "body, size", 1) + "SELECT unhex(lpad(hex(seq), 32, '0')), 'v1', 'old', 2, 1, 1, 1, '', '', 0 FROM (SELECT seq FROM seq_1_to_1000000 LIMIT ?) AS s"
	}
	return columns + "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT randomblob(16), 'v1', 'old', 2, 1, 1, 1, x'', x'' FROM n"
}
