package integration

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC058MemoryUnderCleaning: many publish and handle in memory while rows
// expire and are deleted every millisecond.
func TestC058MemoryUnderCleaning(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	var handled atomic.Int64
	bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}), serving(inGroup("t", func(context.Context, string) error {
		handled.Add(1)
		return nil
	})), func(o *cap.Options) {
		o.Concurrency, o.CollectorBatchSize = 20, 10
		o.SucceedMessageExpiredAfter, o.CollectorCleaningInterval = time.Millisecond, time.Millisecond
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var published atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := bus.Publish(context.WithoutCancel(ctx), cap.NoTx, "t", "m"); err != nil {
					t.Error(err)
				}
				published.Add(1)
				_ = store.Records(storage.Inbox) // what a page of messages would ask for
				<-time.After(time.Millisecond)
			}
		})
	}
	all.Wait()
	eventually(t, "all are handled and deleted", func() bool {
		return handled.Load() == published.Load() && len(store.Records(storage.Outbox))+len(store.Records(storage.Inbox)) == 0
	})
	t.Logf("%d messages", handled.Load())
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	return ms.HeapInuse
}

// TestC059MemoryIsReleased: storage and transport in memory keep nothing of what
// has expired. Not parallel: it measures the heap of the process.
//
//nolint:paralleltest // see above
func TestC059MemoryIsReleased(t *testing.T) {
	store := memstore.New(memstore.Config{})
	var handled atomic.Int64
	bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}), serving(inGroup("t", func(context.Context, string) error {
		handled.Add(1)
		return nil
	})), func(o *cap.Options) {
		o.SucceedMessageExpiredAfter, o.CollectorCleaningInterval = 500*time.Millisecond, 50*time.Millisecond
	}))
	before := heap()
	const all = 6_000
	body := strings.Repeat("x", 2000)
	for range all / 500 {
		must(t, bus.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error {
			for range 500 {
				if err := bus.Publish(ctx, tx, "t", body); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	eventually(t, "all are handled and deleted", func() bool {
		return handled.Load() == all && len(store.Records(storage.Outbox))+len(store.Records(storage.Inbox)) == 0
	})
	if after := heap(); after > before+20<<20 {
		t.Errorf("the heap has grown from %d to %d bytes", before, after)
	}
}

// TestC178LargeBodies: what is too large is refused by Publish, and the
// transaction goes on; a backlog of large bodies before slow handlers is not in
// memory as a whole. Not parallel: it measures the heap of the process.
//
//nolint:paralleltest // see above
func TestC178LargeBodies(t *testing.T) {
	const rows, body = 150, 1 << 20
	path := file(t)
	store := opened(t, path)
	publisher := made(t, store, memqueue.New(memqueue.Config{}), func(o *cap.Options) { o.MaxBodySize = 2 << 20 })
	must(t, store.Migrate(t.Context()))
	must(t, store.DB().Transaction(func(tx *gorm.DB) error {
		err := publisher.Publish(t.Context(), tx, "t", make([]byte, 2<<20)) // more as base64
		if err == nil || !strings.Contains(err.Error(), "Options.MaxBodySize") {
			t.Errorf("a body over the limit: %v", err)
		}
		return publisher.Publish(t.Context(), tx, "t", []byte("goes on"))
	}))
	// A backlog of the inbox, as a process leaves it that had failed to handle it.
	must(t, store.DB().Exec("INSERT INTO cap_received (id, version, group_name, subscriber, name, message_id, status, retries, due_at, added_at, updated_at, headers, body) "+
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "+
		`SELECT randomblob(16), 'v1', 'g', 't', 't', i, 3, 1, 1, 1, 1, x'', CAST('"' || replace(hex(zeroblob(?)), '00', 'AA') || '"' AS BLOB) FROM n`, rows, body/2).Error)
	var handled atomic.Int64
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	before := heap()
	bus := made(t, store, memqueue.New(memqueue.Config{}), serving(inGroup("t", func(context.Context, *cap.Message) error {
		handled.Add(1)
		<-goOn
		return nil
	})))
	begun(t, bus)
	t.Cleanup(release)
	eventually(t, "all workers are busy", func() bool { return handled.Load() == 4 })
	<-time.After(2 * time.Second)          // many more looks
	grown := int64(heap()) - int64(before) //nolint:gosec // far below
	t.Logf("the heap has grown by %d MiB for %d rows of a MiB", grown>>20, rows)
	if grown > rows*body/2 {
		t.Errorf("the heap has grown by %d MiB for %d rows of a MiB", grown>>20, rows)
	}
	release()
	eventually(t, "all are handled", func() bool { return handled.Load() == rows+1 })
}
