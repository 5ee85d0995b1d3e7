package tracking

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/cap/captest"
	"github.com/capbus/gocap/idempotency"
	"github.com/capbus/gocap/idempotency/gormtracker"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
)

type payment struct{ Order string }

// payBus charges each payment in the inbox transaction, once for each key of the
// tracker, which works in that transaction, too. The first attempt of each
// message fails after all is written.
func payBus(t *testing.T, store *gormstore.Store, key idempotency.KeyFunc) *cap.Bus {
	t.Helper()
	tr := tracker(t, store.DB(), gormtracker.Config{Tx: cap.TxFromContext})
	failOnce := func(next subscribe.Handler) subscribe.Handler {
		return subscribe.HandlerFunc(func(ctx context.Context, m *cap.Message) error {
			err := next.Handle(ctx, m)
			if info, _ := cap.InfoFromContext(ctx); err == nil && info.Attempt == 1 {
				return errors.New("the success is lost")
			}
			return err
		})
	}
	return captest.NewWith(t, func(o *cap.Options) {
		o.Storage = store
		o.Concurrency = 4
		o.RetryBackoff = func(int) time.Duration { return time.Millisecond }
	}, subscribe.To("paid", gormstore.Handle(func(_ context.Context, tx *gorm.DB, p payment) error {
		return write(tx, p.Order)
	}), subscribe.With(failOnce, idempotency.Middleware(tr, key))))
}

// The same event, published again under new ids: by its business key it has its
// effect once. A tracker by message id takes each for a new one, and this is
// what tells them apart.
func TestABusinessKeyFindsTheSameEventUnderNewIDs(t *testing.T) {
	t.Parallel()
	byOrder := idempotency.JSONKey(func(p payment) string { return p.Order })
	for name, c := range map[string]struct {
		key  idempotency.KeyFunc
		want int
	}{"business key": {byOrder, 1}, "message id": {idempotency.MessageID, copies}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, d database) {
				t.Helper()
				store := d.openNew(t)
				bus := payBus(t, store, c.key)
				for range copies {
					must(t, bus.Publish(t.Context(), cap.NoTx, "paid", payment{"order 7"}))
				}
				must(t, bus.Publish(t.Context(), cap.NoTx, "paid", payment{"order 8"}))
				eventually(t, "all are handled", func() bool { return handled(t, store.DB()) == copies+1 })
				if n := effects(t, store.DB(), "order 7"); n != c.want {
					t.Errorf("charged %d times, want %d", n, c.want)
				}
				if n := effects(t, store.DB(), "order 8"); n != 1 {
					t.Errorf("another order is charged %d times, want 1", n)
				}
			})
		})
	}
}

const copies = 8

func handled(t *testing.T, db *gorm.DB) int {
	t.Helper()
	var n int
	must(t, db.Raw("SELECT count(*) FROM cap_received WHERE expires_at IS NOT NULL").Scan(&n).Error)
	return n
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !f(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// A handler outside the bus has no inbox transaction: nothing runs past it.
func TestWithoutAnInboxTransactionNothingRuns(t *testing.T) {
	t.Parallel()
	tr := tracker(t, databases()[0].openNew(t).DB(), gormtracker.Config{Tx: cap.TxFromContext})
	var ran atomic.Bool
	err := tr.Once(t.Context(), "a", func(context.Context) error { ran.Store(true); return nil })
	if !errors.Is(err, cap.ErrNoTx) || ran.Load() {
		t.Errorf("error %v, ran %v", err, ran.Load())
	}
}
