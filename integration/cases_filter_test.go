package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC133HandlerInTransaction: what the handler writes and publishes is there
// altogether or not at all, whether the transaction is that of the inbox or one
// that middleware opens, and a commit that fails is a failed attempt.
func TestC133HandlerInTransaction(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(testing.TB) *gormstore.Store{
		"sqlite": func(tb testing.TB) *gormstore.Store {
			tb.Helper()
			store := opened(tb, file(tb))
			must(tb, store.DB().Exec("CREATE TABLE effects (id TEXT)").Error)
			return store
		},
		"postgres": func(tb testing.TB) *gormstore.Store { tb.Helper(); return postgresStore(tb, postgresDatabase(tb), 8) },
		"mariadb": func(tb testing.TB) *gormstore.Store {
			tb.Helper()
			store := onMariaDB(tb).store
			must(tb, store.DB().Exec("CREATE TABLE effects (id TEXT)").Error)
			return store
		},
	} {
		for _, kind := range []string{"inbox", "middleware"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				handleInTransaction(t, store(t), kind)
			})
		}
	}
}

// deferred fails at the commit, not before; nothing does on MariaDB.
const deferred = `CREATE TABLE parents (id TEXT PRIMARY KEY);
	CREATE TABLE children (id TEXT, parent TEXT REFERENCES parents(id) DEFERRABLE INITIALLY DEFERRED)`

// ends is what a handler does after its work, at the first attempt: hows says
// the ways.
func ends(ctx context.Context, tx *gorm.DB, how string) error {
	if info, _ := cap.InfoFromContext(ctx); info.Attempt > 1 {
		return nil
	}
	switch how {
	case "error":
		return errRollback
	case "panic":
		panic("on purpose")
	case "cancel":
		<-ctx.Done()
		return ctx.Err()
	case "commit":
		return tx.Exec("INSERT INTO children VALUES (?, 'nobody')", how).Error
	}
	return nil
}

func hows(db *gorm.DB) []string {
	all := []string{"success", "error", "panic", "cancel", "commit"}
	if db.Name() == "mysql" {
		return all[:4]
	}
	return all
}

// inTransaction is a handler that writes and publishes, in the transaction that
// kind says.
func inTransaction(db *gorm.DB, kind string) subscribe.Subscription {
	work := func(ctx context.Context, tx *gorm.DB, how string) error {
		if err := tx.Exec("INSERT INTO effects VALUES (?)", how).Error; err != nil {
			return err
		}
		if err := cap.Publish(ctx, nil, "made", how); err != nil {
			return err
		}
		return ends(ctx, tx, how)
	}
	alone, limit := subscribe.Concurrency(1), subscribe.Timeout(500*time.Millisecond)
	if kind == "inbox" {
		return inGroup("work", gormstore.Handle(work), alone, limit)
	}
	opening := subscribe.With(func(next subscribe.Handler) subscribe.Handler {
		return subscribe.HandlerFunc(func(ctx context.Context, m *transport.Message) error {
			return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				return next.Handle(cap.ContextWithTx(ctx, tx), m)
			})
		})
	})
	return inGroup("work", func(ctx context.Context, how string) error {
		tx, err := cap.TxFromContext(ctx)
		if err != nil {
			return err
		}
		return work(ctx, tx.(*gorm.DB).WithContext(ctx), how)
	}, alone, limit, opening)
}

func handleInTransaction(t *testing.T, store *gormstore.Store, kind string) {
	t.Helper()
	var published journal
	all := hows(store.DB())
	if slices.Contains(all, "commit") {
		must(t, store.DB().Exec(deferred).Error)
	}
	bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}), serving(inTransaction(store.DB(), kind), inGroup("made", published.handle))))
	for _, how := range all {
		must(t, bus.Publish(t.Context(), cap.NoTx, "work", how))
	}
	settled(t, store.DB(), window)
	published.exactly(t, all)
	j := journal{seen: column(t, store.DB(), "SELECT id FROM effects")}
	j.exactly(t, all)
	if slices.Contains(all, "commit") && number(t, store.DB(), "SELECT count(*) FROM children") != 0 {
		t.Error("there are rows of a commit that failed")
	}
	if got := column(t, store.DB(), "SELECT concat(status, ' ', retries) FROM cap_received WHERE name = 'work' ORDER BY 1"); strings.Join(got, ", ") != "2 0"+strings.Repeat(", 2 1", len(all)-1) {
		t.Errorf("rows %q", got)
	}
	must(t, bus.Stop(t.Context()))
	db, err := store.DB().DB()
	must(t, err)
	eventually(t, "all connections are back", func() bool { return db.Stats().InUse == 0 })
}

// step is middleware that notes its way in and out.
func step(j *journal, name string, after func(error) error) subscribe.Middleware {
	return func(next subscribe.Handler) subscribe.Handler {
		return subscribe.HandlerFunc(func(ctx context.Context, m *transport.Message) error {
			j.add(m.Topic + " before " + name)
			err := next.Handle(ctx, m)
			j.add(m.Topic + " after " + name)
			if after != nil {
				err = after(err)
			}
			return err
		})
	}
}

// TestC131Middleware: the order of a chain, an error that it handles or leaves,
// and one of its own: it counts as the handler's.
func TestC131Middleware(t *testing.T) {
	t.Parallel()
	var j journal
	failing := func(context.Context, string) error { j.add("handler"); return errRollback }
	good := func(context.Context, string) error { j.add("handler"); return nil }
	handles := func(error) error { return nil }
	late := func(err error) error { return errors.Join(err, errors.New("too late")) }
	sub := func(topic string, fn func(context.Context, string) error, outer func(error) error) subscribe.Subscription {
		return inGroup(topic, fn, subscribe.With(step(&j, "1", outer), step(&j, "2", nil)), subscribe.With(step(&j, "3", nil)),
			subscribe.FailedRetryCount(2))
	}
	s := start(t, file(t), serving(sub("handled", failing, handles), sub("left", failing, nil), sub("late", good, late)))
	for _, topic := range []string{"handled", "left", "late"} {
		must(t, s.bus.Publish(t.Context(), cap.NoTx, topic, topic))
		settled(t, s.store.DB(), window)
	}
	var want []string
	for _, c := range []struct {
		topic string
		runs  int
	}{{"handled", 1}, {"left", 2}, {"late", 2}} {
		for range c.runs {
			for _, at := range []string{"before 1", "before 2", "before 3", "", "after 3", "after 2", "after 1"} {
				if at == "" {
					want = append(want, "handler")
				} else {
					want = append(want, c.topic+" "+at)
				}
			}
		}
	}
	if got := fmt.Sprint(j.seen); got != fmt.Sprint(want) {
		t.Errorf("order:\n%s, want:\n%s", got, fmt.Sprint(want))
	}
	got := column(t, s.store.DB(), "SELECT name||' '||status||' '||retries||' '||last_error FROM cap_received ORDER BY seq")
	if len(got) != 3 || got[0] != "handled 2 0 " || got[1] != "left 3 2 rolled back on purpose" || got[2] != "late 3 2 too late" {
		t.Errorf("rows %q", got)
	}
}
