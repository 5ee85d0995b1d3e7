package integration

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/transport/memqueue"
)

func locking(o *cap.Options) { o.UseStorageLock, o.PollInterval = true, 20*time.Millisecond }

// leftBehind commits messages with an owner of none: those of a program that has
// no engine.
func leftBehind(t *testing.T, store *gormstore.Store, from, to int) []string {
	t.Helper()
	return publishAll(t, made(t, store, memqueue.New(memqueue.Config{})), "t", from, to)
}

// TestC053LockTableIsBroken: without its table nobody holds a lock. What needs
// none goes on, what needs one waits, and the log stays readable.
func TestC053LockTableIsBroken(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, store *gormstore.Store) {
		t.Helper()
		var j journal
		var log lines
		bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}), serving(inGroup("t", j.handle)), locking, logTo(&log, slog.LevelWarn)))
		want := leftBehind(t, store, 0, 10)
		j.wait(t, len(want))
		before := strings.Count(log.String(), "\n")
		must(t, store.DB().Exec("ALTER TABLE cap_lock RENAME TO away_lock").Error)
		want = append(want, leftBehind(t, store, 10, 20)...)
		const broken = 2 * time.Second
		end := time.After(broken)
		own := publishAll(t, bus, "t", 100, 150)
		j.wait(t, 10+len(own))
		<-end
		if n := j.len(); n != 10+len(own) {
			t.Errorf("%d rows without an owner were taken without a lock", n-10-len(own))
		}
		if n := strings.Count(log.String(), "\n") - before; n == 0 || n > 20 {
			t.Errorf("%d log lines in %s:\n%s", n, broken, log.String())
		}
		must(t, store.DB().Exec("ALTER TABLE away_lock RENAME TO cap_lock").Error)
		want = append(want, own...)
		j.wait(t, len(want))
		settled(t, store.DB(), window)
		j.exactly(t, want)
	})
}

// TestC047LockIsHeldForALease: a lock that is renewed again and again is never
// held for more than a lease from now, and passes on when its holder has gone.
func TestC047LockIsHeldForALease(t *testing.T) {
	t.Parallel()
	for _, db := range databases() {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			store := db.make(t).store
			left := map[string]string{
				"sqlite":   "SELECT coalesce(max(held_until), 0) - (unixepoch('subsec') * 1000000) FROM cap_lock",
				"postgres": "SELECT coalesce(max(extract(epoch FROM held_until - clock_timestamp())), 0) * 1000000 FROM cap_lock",
				"mariadb":  "SELECT coalesce(max(held_until), 0) - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM cap_lock",
			}[db.name]
			const lease = 3 * time.Second
			short := func(o *cap.Options) { o.FallbackWindow = lease }
			q := memqueue.New(memqueue.Config{})
			var j journal
			holder := made(t, store, q, serving(inGroup("t", j.handle)), locking, short)
			must(t, holder.Start(t.Context()))
			j.waitFor(t, leftBehind(t, store, 0, 10))
			renewals, last := 0, int64(0)
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for end := time.Now().Add(3 * lease); time.Now().Before(end); <-tick.C {
				us := microseconds(t, store.DB(), left)
				if us > last {
					renewals++
				}
				if last = us; time.Duration(us)*time.Microsecond > lease+50*time.Millisecond {
					t.Fatalf("the lock is held for %s, more than a lease of %s", time.Duration(us)*time.Microsecond, lease)
				}
			}
			if renewals < 3 {
				t.Errorf("%d renewals in three leases: the test shows nothing", renewals)
			}
			begun(t, made(t, store, q, serving(inGroup("t", j.handle)), locking, short))
			must(t, holder.Stop(context.WithoutCancel(t.Context())))
			since := time.Now()
			j.waitFor(t, leftBehind(t, store, 10, 20))
			if d := time.Since(since); d > lease+2*time.Second {
				t.Errorf("the lock passed on after %s", d)
			}
		})
	}
}

func microseconds(t *testing.T, db *gorm.DB, query string) int64 {
	t.Helper()
	var us float64
	must(t, db.Raw(query).Scan(&us).Error)
	return int64(us)
}

// waitFor waits until all of these are handled.
func (j *journal) waitFor(tb testing.TB, ids []string) {
	tb.Helper()
	eventually(tb, fmt.Sprint("handled: ", ids), func() bool {
		for _, id := range ids {
			if j.count(id) == 0 {
				return false
			}
		}
		return true
	})
}
