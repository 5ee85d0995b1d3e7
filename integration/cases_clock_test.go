package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC071ClockSkew: the clock of the database is an hour before or behind that
// of the processes. Delays, waits for a retry, leases and expiries last as long
// as they should: the database's clock alone decides.
func TestC071ClockSkew(t *testing.T) {
	t.Parallel()
	for _, skew := range []string{"1 hour", "-1 hour"} {
		t.Run(skew, func(t *testing.T) {
			t.Parallel()
			dsn := postgresDatabase(t)
			onPostgres(t, dsn, "CREATE SCHEMA skew")
			for _, clock := range []string{"clock_timestamp", "statement_timestamp", "now"} {
				onPostgres(t, dsn, fmt.Sprintf(`CREATE FUNCTION skew.%s() RETURNS timestamptz LANGUAGE sql AS
					$$ SELECT pg_catalog.%[1]s() + interval '%s' $$`, clock, skew))
			}
			open := func() *gormstore.Store {
				store, err := postgres.Open(setting(t, dsn, "search_path", "skew, public, pg_catalog"),
					postgres.Config{MaxConns: 6, Schema: "public", GORM: &gorm.Config{Logger: logger.Discard}})
				must(t, err)
				t.Cleanup(func() { must(t, store.Close()) })
				return store
			}
			skewed(t, open(), open(), skew)
		})
	}
}

func skewed(t *testing.T, one, two *gormstore.Store, skew string) {
	t.Helper()
	var off float64
	must(t, one.DB().Raw("SELECT extract(epoch FROM clock_timestamp() - pg_catalog.clock_timestamp())").Scan(&off).Error)
	if off > -3000 && off < 3000 {
		t.Fatalf("the clock is off by %.0f s, not by %s", off, skew)
	}
	q := memqueue.New(memqueue.Config{})
	var j journal
	at := make(chan time.Time, 10)
	arrives := inGroup("t", func(ctx context.Context, what string) error {
		info, _ := cap.InfoFromContext(ctx)
		if what == "fails" && info.Attempt == 1 {
			return errRollback
		}
		at <- time.Now()
		return j.handle(ctx, what)
	})
	settings := func(o *cap.Options) {
		o.ImmediateRetries, o.FailedRetryInterval = -1, 2*time.Second
		o.SucceedMessageExpiredAfter, o.CollectorCleaningInterval = 4*time.Second, 20*time.Millisecond
	}
	bus := made(t, one, q, serving(arrives), leased, settings)
	must(t, bus.Start(t.Context()))
	begun(t, made(t, two, q, serving(arrives), leased, settings))
	about := func(what string, took time.Duration) {
		t.Helper()
		if took < 1900*time.Millisecond || took > 10*time.Second {
			t.Errorf("%s took %s, want 2 s", what, took)
		}
	}
	since := time.Now()
	must(t, bus.Publish(t.Context(), cap.NoTx, "t", "delayed", cap.WithDelay(2*time.Second)))
	about("a delay", (<-at).Sub(since))
	since = time.Now()
	must(t, bus.Publish(t.Context(), cap.NoTx, "t", "fails"))
	about("a wait for the retry", (<-at).Sub(since))
	left := "SELECT (SELECT count(*) FROM cap_published) + (SELECT count(*) FROM cap_received)"
	if n := number(t, one.DB(), left); n == 0 {
		t.Error("rows expired at once")
	}
	eventually(t, "rows expire", func() bool { return number(t, one.DB(), left) == 0 })
	if n := number(t, one.DB(), "SELECT count(*) FROM cap_instances WHERE died"); n > 0 {
		t.Errorf("%d living instances were taken for dead", n)
	}
	must(t, bus.Publish(t.Context(), cap.NoTx, "t", "left", cap.WithDelay(2*time.Second)))
	must(t, bus.Stop(t.Context()))
	since = time.Now()
	if took := (<-at).Sub(since); took > 10*time.Second {
		t.Errorf("what a stopped instance had left was taken over after %s", took)
	}
	j.exactly(t, []string{"delayed", "fails", "left"})
}

// TestC019ClockStepsBack: what is published with ids of an earlier time than
// others have, as a clock that has stepped back makes them, is sent all the same,
// in the order in which it was published.
func TestC019ClockStepsBack(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, store *gormstore.Store) {
		t.Helper()
		var j journal
		bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}), serving(inGroup("t", j.handle, subscribe.Ordered()))))
		const n = 40
		var ids []string
		for range n {
			ids = append(ids, cap.NewID())
		}
		for i := range n {
			id := ids[n-1-i] // each is older than the one before
			if i%10 == 9 {
				id = cap.NewID()
			}
			must(t, bus.Publish(t.Context(), cap.NoTx, "t", fmt.Sprint(i), cap.WithKey("k"), cap.WithID(id)))
		}
		j.wait(t, n)
		settled(t, store.DB(), window)
		if !slices.IsSortedFunc(j.seen, byNumber) || len(j.seen) != n {
			t.Errorf("handled %q", j.seen)
		}
	})
}
