package integration

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	gormschema "gorm.io/gorm/schema"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC144ManyProcessesStart on an empty file at the same moment: all of them
// start, and each can publish and handle at once.
func TestC144ManyProcessesStart(t *testing.T) {
	t.Parallel()
	path := file(t)
	const processes = 6
	var all sync.WaitGroup
	for i := range processes {
		all.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this test binary
			cmd.Env = append(os.Environ(), childEnv+"=starter", "GOCAP_TEST_DB="+path, "GOCAP_TEST_ROUND="+fmt.Sprint(i))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	store := opened(t, path)
	if n := number(t, store.DB(), "SELECT count(*) FROM cap_published WHERE status = 2"); n != processes {
		t.Errorf("%d messages were sent, want %d", n, processes)
	}
	steps, err := store.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	if n := number(t, store.DB(), "SELECT count(*) FROM cap_migrations"); n != len(steps) {
		t.Errorf("%d steps are recorded", n)
	}
	if got := column(t, store.DB(), "SELECT name FROM sqlite_master WHERE name NOT LIKE 'cap\\_%' ESCAPE '\\' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"); len(got) > 0 {
		t.Errorf("other objects: %q", got)
	}
}

// starterChild starts a bus, and has a message handled.
func starterChild() {
	ctx := context.Background()
	store, err := sqlite.Open(os.Getenv("GOCAP_TEST_DB"), sqlite.Config{GORM: &gorm.Config{Logger: logger.Discard}})
	check(err)
	handled := make(chan string, 100)
	bus, err := cap.New(cap.Options{
		Storage: store, Transport: memqueue.New(memqueue.Config{}), Registry: &subscribe.Registry{},
		Subscriptions: []subscribe.Subscription{subscribe.To("t", func(_ context.Context, id string) error { handled <- id; return nil }, subscribe.Group("g"))},
	})
	check(err)
	check(bus.Start(ctx))
	own := os.Getenv("GOCAP_TEST_ROUND")
	check(bus.Publish(ctx, cap.NoTx, "t", own))
	for end := time.After(patience); ; {
		select {
		case id := <-handled:
			if id != own {
				continue // what another left, taken over
			}
		case <-end:
			check(fmt.Errorf("%s was not handled", own))
		}
		break
	}
	check(bus.Stop(ctx))
	check(store.Close())
}

// TestC145OthersMakeTheTables: the operator applies the texts, and the bus makes
// nothing. What is missing is named, and what is not needed is not missed.
func TestC145OthersMakeTheTables(t *testing.T) {
	t.Parallel()
	byHand := func(t *testing.T, store *gormstore.Store) {
		t.Helper()
		list, err := store.Migrations()
		must(t, err)
		for _, m := range list {
			must(t, store.DB().Exec(m.Up).Error)
		}
	}
	for name, c := range map[string]struct {
		none bool
		then string
		says string // the error of Start; "": it starts
		logs string
	}{
		"all there":      {},
		"no table":       {none: true, says: "step 1, messages"},
		"no inbox":       {then: "DROP TABLE cap_received", says: "cap_received"},
		"no heartbeats":  {then: "DROP TABLE cap_instances", says: "cap_instances"},
		"a column less":  {then: "ALTER TABLE cap_published DROP COLUMN takeovers", says: "takeovers"},
		"an index less":  {then: "DROP INDEX cap_published_due"},
		"no deleting":    {then: "CREATE TRIGGER keep BEFORE DELETE ON cap_published BEGIN SELECT RAISE(ABORT, 'DELETE denied'); END", logs: "DELETE denied"},
		"a column added": {then: "ALTER TABLE cap_published ADD COLUMN note TEXT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := opened(t, file(t))
			if !c.none {
				byHand(t, store)
			}
			if c.then != "" {
				must(t, store.DB().Exec(c.then).Error)
			}
			var j journal
			var log lines
			bus := made(t, store, memqueue.New(memqueue.Config{}), serving(inGroup("t", j.handle)), logTo(&log, slog.LevelWarn), func(o *cap.Options) {
				o.SkipMigrations, o.SucceedMessageExpiredAfter, o.CollectorCleaningInterval = true, 10*time.Millisecond, 20*time.Millisecond
			})
			if c.says != "" {
				if err := bus.Start(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("Start: %v, want an error that names %s", err, c.says)
				}
				return
			}
			begun(t, bus)
			var want []string
			for i := range 5 {
				want = append(want, fmt.Sprint(i))
				must(t, bus.Publish(t.Context(), cap.NoTx, "t", fmt.Sprint(i)))
			}
			settled(t, store.DB(), window)
			j.exactly(t, want)
			if c.logs != "" {
				eventually(t, "it is logged", func() bool { return strings.Contains(log.String(), c.logs) })
			}
		})
	}
}

// TestC147Names: tables are those of the prefix alone, beside others in the same
// file and whatever gorm's own naming is.
func TestC147Names(t *testing.T) {
	t.Parallel()
	path := file(t)
	naming := func(c *sqlite.Config) {
		c.GORM.NamingStrategy = gormschema.NamingStrategy{TablePrefix: "other_", SingularTable: true, NoLowerCase: true}
	}
	prefixes := []string{"CapBus_", "select", "cap_"}
	for _, prefix := range prefixes {
		store := opened(t, path, naming, func(c *sqlite.Config) { c.TablePrefix = prefix })
		var j journal
		bus := made(t, store, memqueue.New(memqueue.Config{}), serving(inGroup("t", j.handle)), func(o *cap.Options) {
			o.SucceedMessageExpiredAfter, o.CollectorCleaningInterval = 50*time.Millisecond, 20*time.Millisecond
		})
		begun(t, bus)
		must(t, bus.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error { return bus.Publish(ctx, tx, "t", prefix) }))
		must(t, bus.Publish(t.Context(), cap.NoTx, "t", prefix+" later", cap.WithDelay(100*time.Millisecond)))
		j.wait(t, 2)
		left := fmt.Sprintf(`SELECT (SELECT count(*) FROM "%spublished") + (SELECT count(*) FROM "%sreceived")`, prefix, prefix)
		eventually(t, "its rows are cleaned up", func() bool { return number(t, store.DB(), left) == 0 })
		j.exactly(t, []string{prefix, prefix + " later"})
	}
	for _, name := range column(t, opened(t, path).DB(), "SELECT name FROM sqlite_master WHERE name NOT GLOB 'sqlite_*'") {
		if !strings.HasPrefix(name, prefixes[0]) && !strings.HasPrefix(name, prefixes[1]) && !strings.HasPrefix(name, prefixes[2]) {
			t.Errorf("there is an object %q", name)
		}
	}
}

// TestC149Lengths: names that are too long are refused where they are given,
// before the transaction is touched, with the limit; all others arrive whole.
func TestC149Lengths(t *testing.T) {
	t.Parallel()
	const limit = 255
	var j journal
	var subs []subscribe.Subscription
	var topics []string
	store, q := opened(t, file(t)), memqueue.New(memqueue.Config{})
	start := func(prefix string, subs ...subscribe.Subscription) error {
		bus, err := cap.New(short(store, q, serving(subs...), func(o *cap.Options) { o.TopicNamePrefix, o.GroupNamePrefix = prefix, prefix }))
		if err == nil {
			err = bus.Start(t.Context())
		}
		if err == nil {
			must(t, bus.Stop(t.Context()))
		}
		return err
	}
	handler := func(ctx context.Context, _ string) error {
		info, _ := cap.InfoFromContext(ctx)
		return j.handle(ctx, info.Message.Topic)
	}
	for _, bytes := range []int{1, 50, 51, 199, 200, 201, 255, 256, 1000} {
		for _, char := range []string{"t", "世"} {
			name := strings.Repeat(char, max(1, bytes/len(char)))
			sub := subscribe.To(name, handler, subscribe.Group("g"))
			if len(name) <= limit && !slices.Contains(topics, name) {
				topics, subs = append(topics, name), append(subs, sub)
			} else if len(name) > limit {
				if err := start("", sub); err == nil || !strings.Contains(err.Error(), "at most 255") {
					t.Errorf("a topic of %d bytes: %v", len(name), err)
				}
			}
			tooLong := len(name)+len(".v1") > limit // the name of the queue
			if err := start("", subscribe.To("t", handler, subscribe.Group(name))); tooLong != (err != nil) || tooLong && !strings.Contains(err.Error(), "at most 255") {
				t.Errorf("a group of %d bytes: %v", len(name), err)
			}
			tooLong = len(name)+len("pre..v1") > limit
			if err := start("pre", subscribe.To(name, handler, subscribe.Group(name))); tooLong != (err != nil) {
				t.Errorf("a topic and group of %d bytes with a prefix: %v", len(name), err)
			}
		}
	}
	bus := begun(t, made(t, store, q, serving(subs...)))
	must(t, store.DB().Transaction(func(tx *gorm.DB) error {
		for _, long := range []string{strings.Repeat("t", 256), strings.Repeat("世", 86), strings.Repeat("t", 1000)} {
			if err := bus.Publish(t.Context(), tx, long, "x"); err == nil || !strings.Contains(err.Error(), "at most 255") {
				t.Errorf("publish to a topic of %d bytes: %v", len(long), err)
			}
		}
		for _, topic := range topics {
			if err := bus.Publish(t.Context(), tx, topic, "x"); err != nil {
				return err
			}
		}
		return nil
	}))
	settled(t, store.DB(), window)
	j.exactly(t, topics)
}
