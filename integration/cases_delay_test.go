package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // the zones of TestC070TimeZones, wherever it runs

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC064DelayedLoopSurvives: errors of the database, of every statement and of
// the write before a delayed row is tried alone, do not end the delayed loop.
func TestC064DelayedLoopSurvives(t *testing.T) {
	t.Parallel()
	eachDatabase(t, breakWhileDelayed)
}

// broken are, of each dialect, what makes every UPDATE of the outbox fail, and
// what puts it right.
func broken(db *gorm.DB) (away, back string) {
	switch db.Name() {
	case "postgres":
		return "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$; " +
			"CREATE TRIGGER broken BEFORE UPDATE ON cap_published FOR EACH ROW EXECUTE FUNCTION broken()", "DROP FUNCTION broken CASCADE"
	case "mysql":
		return "CREATE TRIGGER broken BEFORE UPDATE ON cap_published FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'broken'", "DROP TRIGGER broken"
	}
	return "CREATE TRIGGER broken BEFORE UPDATE ON cap_published BEGIN SELECT RAISE(ABORT, 'broken'); END", "DROP TRIGGER broken"
}

func breakWhileDelayed(t *testing.T, store *gormstore.Store) {
	t.Helper()
	var j journal
	bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}), serving(inGroup("t", j.handle))))
	db := store.DB()
	var want []string
	for round := range 2 {
		for i := range 20 {
			id := fmt.Sprint(round, "-", i)
			want = append(want, id)
			must(t, bus.Publish(t.Context(), cap.NoTx, "t", id, cap.WithDelay(time.Duration(500+20*i)*time.Millisecond)))
		}
		away, back := "ALTER TABLE cap_published RENAME TO away", "ALTER TABLE away RENAME TO cap_published"
		if round == 1 {
			away, back = broken(db)
		}
		must(t, db.Exec(away).Error)
		<-time.After(1200 * time.Millisecond) // all of them become due meanwhile
		if n := j.len(); n != 20*round {
			t.Errorf("%d handled while the database is broken, want %d", n, 20*round)
		}
		must(t, db.Exec(back).Error)
		j.wait(t, len(want))
	}
	settled(t, db, window)
	j.exactly(t, want)
}

// TestC066ManyDueAtOnce: a backlog that is due at the same moment, and takes
// longer than the window to be sent, is sent once each.
func TestC066ManyDueAtOnce(t *testing.T) {
	t.Parallel()
	for _, instances := range []int{1, 3} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			t.Parallel()
			sendAllAtOnce(t, instances)
		})
	}
}

func sendAllAtOnce(t *testing.T, instances int) {
	t.Helper()
	path, q := file(t), memqueue.New(memqueue.Config{})
	var j journal
	var services []*service
	for range instances {
		services = append(services, start(t, path, over(q), serving(inGroup("t", j.handle)), func(o *cap.Options) {
			o.SendWindow, o.BatchSize, o.PollInterval = 10, 10, 20*time.Millisecond // few at once, many looks
		}))
	}
	const all = 400
	q.Record(10 * all)
	q.SetFaults(memqueue.Faults{SendDelay: 20 * time.Millisecond})
	at := time.Now().Add(500 * time.Millisecond)
	var want []string
	for i := range instances {
		must(t, services[i].bus.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error {
			for n := i; n < all; n += instances {
				want = append(want, fmt.Sprint(n))
				if err := services[i].bus.Publish(ctx, tx, "t", fmt.Sprint(n), cap.WithDueAt(at)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	settled(t, services[0].store.DB(), window)
	j.exactly(t, want)
	if n := len(q.Sent()); n != all {
		t.Errorf("%d messages were sent, want %d", n, all)
	}
}

// TestC072DelayLongerThanExpiry: a delayed message does not expire before it is
// due; it is delivered once, and removed afterwards.
func TestC072DelayLongerThanExpiry(t *testing.T) {
	t.Parallel()
	path, q := file(t), memqueue.New(memqueue.Config{})
	var j journal
	expire := func(o *cap.Options) {
		o.SucceedMessageExpiredAfter, o.FailedMessageExpiredAfter = 200*time.Millisecond, 200*time.Millisecond
		o.CollectorCleaningInterval = 20 * time.Millisecond
	}
	one := start(t, path, over(q), serving(inGroup("t", j.handle)), expire)
	start(t, path, over(q), serving(inGroup("t", j.handle)), expire)
	var want []string
	published := time.Now()
	for i := range 50 {
		want = append(want, fmt.Sprint(i))
		must(t, one.bus.Publish(t.Context(), cap.NoTx, "t", fmt.Sprint(i), cap.WithDelay(3*time.Second)))
	}
	j.wait(t, 1)
	if d := time.Since(published); d < 3*time.Second {
		t.Errorf("handled after %s", d)
	}
	j.wait(t, len(want))
	left := "SELECT (SELECT count(*) FROM cap_published) + (SELECT count(*) FROM cap_received)"
	eventually(t, "all rows are removed", func() bool { return number(t, one.store.DB(), left) == 0 })
	j.exactly(t, want)
}

// TestC070TimeZones, and case C138: publishers in other time zones than the
// service on the same file. Delays, waits for a retry and expiries take as long,
// and the time that a message was sent is the same instant.
func TestC070TimeZones(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Asia/Kolkata", "America/St_Johns", "Pacific/Kiritimati"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			publishFromZone(t, zone)
		})
	}
}

func publishFromZone(t *testing.T, zone string) {
	t.Helper()
	path := file(t)
	type arrival struct {
		topic     string
		at, begun time.Time // begun: the publisher's clock
		sent      string
	}
	var mu sync.Mutex
	var arrivals []arrival
	s := start(t, path, serving(inGroup("#", func(ctx context.Context, begun time.Time) error {
		info, _ := cap.InfoFromContext(ctx)
		if info.Attempt < 2 {
			return errRollback
		}
		mu.Lock()
		defer mu.Unlock()
		arrivals = append(arrivals, arrival{info.Message.Topic, time.Now(), begun, info.Message.Headers[transport.HeaderSentTime]})
		return nil
	})), func(o *cap.Options) { o.ImmediateRetries, o.FailedRetryInterval = -1, time.Second })
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this test binary
	cmd.Env = append(os.Environ(), childEnv+"=zone", "GOCAP_TEST_DB="+path, "TZ="+zone)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	eventually(t, "all have arrived", func() bool { mu.Lock(); defer mu.Unlock(); return len(arrivals) == 3 })
	settled(t, s.store.DB(), window)
	for _, a := range arrivals {
		want := map[string]time.Duration{"now": time.Second, "delayed": 3 * time.Second, "due": 3 * time.Second}[a.topic]
		if d := a.at.Sub(a.begun); d < want-10*time.Millisecond || d > want+patience {
			t.Errorf("%s: handled after %s, want %s", a.topic, d, want)
		}
		sent, err := time.Parse(time.RFC3339Nano, a.sent)
		if d := sent.Sub(a.begun).Abs(); err != nil || d > patience {
			t.Errorf("%s: sent at %q, %s from when it was published (%v)", a.topic, a.sent, d, err)
		}
	}
	for _, table := range []string{"cap_published", "cap_received"} {
		const hours = " abs(strftime('%s', 'now') - added_at / 1000000) < 600 AND abs(expires_at - updated_at - 86400000000) < 60000000"
		if n := number(t, s.store.DB(), "SELECT count(*) FROM "+table+" WHERE"+hours); n != 3 {
			t.Errorf("%s: the moments of %d rows are right, want 3", table, n)
		}
	}
}

// zoneChild publishes without a running bus.
func zoneChild() {
	if _, offset := time.Now().Zone(); offset == 0 {
		check(fmt.Errorf("the zone %s is not in effect", os.Getenv("TZ")))
	}
	ctx := context.Background()
	s, err := newService(ctx, os.Getenv("GOCAP_TEST_DB"))
	check(err)
	now := time.Now()
	check(s.bus.Publish(ctx, cap.NoTx, "now", now))
	check(s.bus.Publish(ctx, cap.NoTx, "delayed", now, cap.WithDelay(2*time.Second)))
	check(s.bus.Publish(ctx, cap.NoTx, "due", now, cap.WithDueAt(now.Add(2*time.Second))))
	check(s.store.Close())
}
