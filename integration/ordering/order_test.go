package ordering

import (
	"context"
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capbus/gocap/storage"
)

// size of a run; see run.sh.
type size struct{ messages, keys, instances, batch, every int }

func sizeOf(tb testing.TB, s size) size {
	tb.Helper()
	s.messages = fromEnv(tb, "GOCAP_ORDER_MESSAGES", s.messages)
	s.keys = fromEnv(tb, "GOCAP_ORDER_KEYS", s.keys)
	s.instances = fromEnv(tb, "GOCAP_ORDER_INSTANCES", s.instances)
	s.batch = fromEnv(tb, "GOCAP_ORDER_BATCH", s.batch)
	s.every = fromEnv(tb, "GOCAP_ORDER_DISTURB_MS", s.every)
	return s
}

func TestNoInversionOnSQLite(t *testing.T) {
	t.Parallel()
	run(t, filepath.Join(t.TempDir(), "order.db"), sizeOf(t, size{messages: 500, keys: 50, instances: 3, batch: 25, every: 3500}))
}

func TestNoInversionOnPostgres(t *testing.T) {
	t.Parallel()
	run(t, newDatabase(t), sizeOf(t, size{messages: 10_000, keys: 100, instances: 3, batch: 50, every: 3500}))
}

// run publishes, disturbs, waits until everything is handled, and checks.
func run(t *testing.T, db string, s size) {
	t.Helper()
	store, err := open(db)
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	must(t, store.Migrate(t.Context()))
	must(t, tables(store.DB()))
	seed := fromEnv(t, "GOCAP_ORDER_SEED", int(time.Now().UnixNano()))
	t.Logf("GOCAP_ORDER_SEED=%d: %d messages over %d keys", seed, s.messages, s.keys)
	f := &fleet{
		tb: t, db: db, look: store.DB(), rng: mrand.New(mrand.NewPCG(uint64(seed), 1)), //nolint:gosec // repeatable on purpose
		each: s.messages / s.keys, batch: s.batch, events: make(chan event, 1000), next: map[string]int{}, left: s.messages / s.keys * s.keys,
	}
	for i := range s.keys {
		f.free = append(f.free, fmt.Sprintf("key-%04d", i))
	}
	for range s.instances {
		f.join()
	}
	begun := time.Now()
	disturb := time.NewTicker(time.Duration(s.every) * time.Millisecond)
	defer disturb.Stop()
	for f.left > 0 {
		select {
		case e := <-f.events:
			f.handle(e)
		case <-disturb.C:
			f.disturb()
		}
		f.give()
	}
	published := time.Since(begun)
	f.finish(disturb.C)
	handled := time.Since(begun)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f.leave(ctx)
	report := f.check(s)
	t.Logf("%d messages over %d keys: published in %.1f s, all handled after %.1f s (%.0f/s); %d kills, %d leaves, %d joins; %s",
		s.messages, s.keys, published.Seconds(), handled.Seconds(), float64(s.messages)/handled.Seconds(), f.kills, f.leaves, f.joins, report)
}

// finish waits until no row has anything more to do; while there is much to do
// the disturbances go on, and two more come in any case.
func (f *fleet) finish(disturb <-chan time.Time) {
	f.tb.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	more := f.kills + f.leaves + 2
	last, moved, next := -1, time.Now(), time.Now()
	for {
		select {
		case e := <-f.events:
			f.handle(e)
		case <-disturb:
			if f.kills+f.leaves < more || last > 20_000 {
				f.disturb()
			}
		case <-tick.C:
			begun := time.Now()
			if begun.Before(next) {
				continue
			}
			open := f.count(`SELECT (SELECT count(*) FROM cap_published WHERE expires_at IS NULL) + (SELECT count(*) FROM cap_received WHERE expires_at IS NULL)`)
			if open == 0 {
				return
			}
			next = time.Now().Add(50 * time.Since(begun)) // the counting reads whole tables
			if open != last {
				last, moved = open, time.Now()
			}
			if time.Since(moved) > 10*lease {
				f.tb.Fatalf("%d rows are stuck", open)
			}
		}
	}
}

func (f *fleet) count(query string) int {
	f.tb.Helper()
	var n int
	must(f.tb, f.look.Raw(query).Scan(&n).Error)
	return n
}

// check looks for inversions: within a key, n goes up by one each time, but for
// the messages that fail for good. What is handled in the inbox transaction has
// no repeats.
func (f *fleet) check(s size) string {
	f.tb.Helper()
	rows, err := f.look.Raw(`SELECT k, n FROM handled ORDER BY k, seq`).Rows()
	must(f.tb, err)
	defer rows.Close()
	back, gaps, repeats, handled, key, last := 0, 0, 0, 0, "", 0
	for rows.Next() {
		var m turn
		must(f.tb, rows.Scan(&m.Key, &m.N))
		if m.Key != key {
			key, last = m.Key, 0
		}
		handled++
		want := last + 1
		for (turn{N: want}).rejected() {
			want++
		}
		switch {
		case m.N == last:
			repeats++
		case m.N < last:
			back++
			f.tb.Errorf("inversion of %s: %d after %d", m.Key, m.N, last)
		case m.N != want:
			gaps++
			f.tb.Errorf("gap of %s: %d after %d", m.Key, m.N, last)
		}
		last = max(last, m.N)
	}
	must(f.tb, rows.Err())
	rejected := 0
	for n := 1; n <= f.each; n++ {
		if (turn{N: n}).rejected() {
			rejected += s.keys
		}
	}
	if want := f.each*s.keys - rejected; handled != want {
		f.tb.Errorf("%d were handled, want %d", handled, want)
	}
	if repeats > 0 {
		f.tb.Errorf("%d effects in an inbox transaction are there twice", repeats)
	}
	if got := f.count(fmt.Sprintf(`SELECT count(*) FROM cap_received WHERE status = %d`, storage.Failed)); got != rejected {
		f.tb.Errorf("%d have failed for good, want %d", got, rejected)
	}
	if got := f.count(fmt.Sprintf(`SELECT count(*) FROM cap_published WHERE status <> %d`, storage.Succeeded)); got != 0 {
		f.tb.Errorf("%d were not sent", got)
	}
	retried := f.count(`SELECT count(*) FROM cap_received WHERE retries > 0`)
	return fmt.Sprintf("%d handled, %d inversions, %d gaps, %d repeats, %d failed for good, %d failed at least once", handled, back, gaps, repeats, rejected, retried)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// newDatabase makes a database that is dropped after the test.
func newDatabase(tb testing.TB) string {
	tb.Helper()
	server := os.Getenv("GOCAP_POSTGRES_DSN")
	if server == "" {
		server = "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
	}
	name := "gocap_order_" + strings.ToLower(rand.Text()[:12])
	onServer := func(q string) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), 30*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, server)
		must(tb, err)
		defer conn.Close(ctx) //nolint:errcheck // it is not used any more
		_, err = conn.Exec(ctx, q)
		must(tb, err)
	}
	onServer(`CREATE DATABASE ` + name)
	tb.Cleanup(func() { onServer(`DROP DATABASE ` + name + ` WITH (FORCE)`) })
	u, err := url.Parse(server)
	must(tb, err)
	u.Path = "/" + name
	return u.String()
}
