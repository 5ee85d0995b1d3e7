package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC039FinalStatesStay: instances are declared dead while their handlers run
// and finish, so that others take rows over at that very moment; no state that
// is final is left, and what is done in the inbox transaction is done once.
func TestC039FinalStatesStay(t *testing.T) {
	t.Parallel()
	path, q := file(t), memqueue.New(memqueue.Config{})
	effect := gormstore.Handle(func(ctx context.Context, tx *gorm.DB, id string) error {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
		return tx.Exec("INSERT INTO effects VALUES (?)", id).Error
	})
	var plain journal
	subs := serving(inGroup("t", effect), subscribe.To("t", func(ctx context.Context, id string) error {
		<-time.After(20 * time.Millisecond) // it does not notice that its lease is lost
		return plain.handle(ctx, id)
	}, subscribe.Group("plain")))
	var services []*service
	for range 3 {
		services = append(services, start(t, path, subs, leased, over(q)))
	}
	db := services[0].store.DB()
	ended := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		tick := time.NewTicker(150 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = db.Exec("UPDATE cap_instances SET ended_at = beat_at, died = 1 WHERE ended_at IS NULL AND number % 3 = abs(random()) % 3").Error
			case <-ended:
				return
			}
		}
	})
	var want []string
	for i := range 120 {
		want = append(want, fmt.Sprint(i))
		must(t, services[i%3].bus.Publish(t.Context(), cap.NoTx, "t", fmt.Sprint(i)))
	}
	most := "SELECT count(*) FROM effects"
	eventually(t, "most are handled", func() bool { return number(t, db, most) > 90 })
	close(ended)
	killer.Wait()
	settled(t, db, window)
	if got := column(t, db, "SELECT box||' '||hex(id) FROM left_final"); len(got) > 0 {
		t.Errorf("final states were left: %q", got)
	}
	if bad := column(t, db, "SELECT name||' '||status||' '||last_error FROM cap_received WHERE status <> 2 UNION ALL SELECT name||' '||status||' '||last_error FROM cap_published WHERE status <> 2"); len(bad) > 0 {
		t.Errorf("%d rows did not succeed: %q", len(bad), bad[:min(5, len(bad))])
	}
	j := journal{seen: column(t, db, "SELECT id FROM effects")}
	j.exactly(t, want)
	for _, id := range want {
		if plain.count(id) == 0 {
			t.Errorf("%s was never handled", id)
		}
	}
	t.Logf("%d runs for %d messages; %d numbers were declared dead", plain.len(), len(want), number(t, db, "SELECT count(*) FROM cap_instances WHERE died = 1"))
}

// TestC040EachServesItsOwn, and case C124: three instances of one group have one
// subscription each, and share broker and tables. Each message is retried where
// its handler lives, and while that instance is away it waits untouched.
func TestC040EachServesItsOwn(t *testing.T) {
	t.Parallel()
	path, q := file(t), memqueue.New(memqueue.Config{})
	topics := []string{"a", "b", "c"}
	var done journal
	run := func(topic string) *service {
		s, err := newService(t.Context(), path, over(q), serving(inGroup(topic, func(ctx context.Context, id string) error {
			info, _ := cap.InfoFromContext(ctx)
			if info.Message.Topic != topic {
				t.Errorf("the handler of %s got one of %s", topic, info.Message.Topic)
			}
			if info.Attempt < 3 {
				return errRollback
			}
			return done.handle(ctx, topic+id)
		})), leased)
		must(t, err)
		must(t, s.bus.Start(t.Context()))
		return s
	}
	end := func(s *service) {
		must(t, errors.Join(s.bus.Stop(context.WithoutCancel(t.Context())), s.store.Close()))
	}
	a, b, c := run("a"), run("b"), run("c")
	var want []string
	publish := func(from, to int) {
		for i := from; i < to; i++ {
			for _, topic := range topics {
				want = append(want, topic+fmt.Sprint(i))
				must(t, a.bus.Publish(t.Context(), cap.NoTx, topic, fmt.Sprint(i)))
			}
		}
	}
	publish(0, 10)
	done.wait(t, 30)
	end(b)
	// It was killed, so that others look at what it left.
	must(t, a.store.DB().Exec("UPDATE cap_instances SET died = 1 WHERE ended_at IS NOT NULL").Error)
	publish(10, 20)
	done.wait(t, 50)
	<-time.After(window + time.Second) // rounds of retrying and adopting pass
	if n := done.len(); n != 50 {
		t.Errorf("%d handled while b is away, want 50", n)
	}
	if got := column(t, a.store.DB(), "SELECT DISTINCT status||' '||retries||' '||takeovers FROM cap_received WHERE name = 'b' AND due_at IS NOT NULL"); len(got) != 1 || got[0] != "0 0 0" {
		t.Errorf("rows of b while it is away: %q, want them untouched", got)
	}
	b = run("b")
	done.wait(t, 60)
	settled(t, a.store.DB(), window)
	done.exactly(t, want)
	if bad := column(t, a.store.DB(), "SELECT name||' '||status||' '||retries FROM cap_received WHERE status <> 2 OR retries <> 2"); len(bad) > 0 {
		t.Errorf("rows %q", bad)
	}
	end(a)
	end(b)
	end(c)
}

// TestC044RestartsAreNoFailures, and case C088: a service that is restarted again
// and again counts no attempt for it, and what it left goes on at once.
func TestC044RestartsAreNoFailures(t *testing.T) {
	t.Parallel()
	path := file(t)
	var done journal
	handler := func(ctx context.Context, id string) error {
		info, _ := cap.InfoFromContext(ctx)
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if info.Attempt < 3 {
			return errRollback
		}
		return done.handle(ctx, id)
	}
	change := func(o *cap.Options) {
		o.FailedRetryCount, o.StopTimeout, o.FallbackWindow = 25, 2*time.Second, time.Minute // a lease is not waited for
	}
	run := func() *service {
		s, err := newService(t.Context(), path, serving(inGroup("t", handler)), change)
		must(t, err)
		must(t, s.bus.Start(t.Context()))
		return s
	}
	s := run()
	var want []string
	must(t, s.bus.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error {
		for i := range 200 {
			want = append(want, fmt.Sprint(i))
			if err := s.bus.Publish(ctx, tx, "t", fmt.Sprint(i)); err != nil {
				return err
			}
		}
		return nil
	}))
	for round := range 5 {
		done.wait(t, 20*(round+1))
		_ = s.bus.Stop(t.Context()) // it may say that work was cut
		must(t, s.store.Close())
		s = run()
	}
	done.wait(t, len(want))
	settled(t, s.store.DB(), window)
	for _, id := range want {
		if done.count(id) == 0 {
			t.Errorf("%s was not handled", id)
		}
	}
	if bad := column(t, s.store.DB(), "SELECT status||' '||retries||' '||takeovers FROM cap_received WHERE status <> 2 OR retries <> 2 OR takeovers <> 0"); len(bad) > 0 {
		t.Errorf("%d rows are counted wrongly: %q", len(bad), bad[0])
	}
	must(t, errors.Join(s.bus.Stop(t.Context()), s.store.Close()))
}

// TestC048LongHandler, and cases C079 and C097: a handler that takes longer than
// a lease runs once though another instance waits for work, and holds up nobody.
func TestC048LongHandler(t *testing.T) {
	t.Parallel()
	path, q := file(t), memqueue.New(memqueue.Config{})
	var long, quick journal
	subs := serving(inGroup("long", func(ctx context.Context, id string) error {
		long.add(id)
		select {
		case <-time.After(2*window + time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}), inGroup("quick", quick.handle))
	one := start(t, path, subs, leased, over(q))
	start(t, path, subs, leased, over(q))
	must(t, one.bus.Publish(t.Context(), cap.NoTx, "long", "x"))
	long.wait(t, 1)
	for i := range 20 {
		must(t, one.bus.Publish(t.Context(), cap.NoTx, "quick", fmt.Sprint(i)))
	}
	quick.wait(t, 20)
	finished := "SELECT count(*) FROM cap_received WHERE name = 'long' AND status = 2"
	eventually(t, "the long one has finished", func() bool { return number(t, one.store.DB(), finished) == 1 })
	if long.len() != 1 || quick.len() != 20 {
		t.Errorf("%d and %d runs, want 1 and 20", long.len(), quick.len())
	}
}

// TestC054ManyStartTogether, and case C101: ten instances start at once before a
// backlog, each with several receivers; every message is handled once.
func TestC054ManyStartTogether(t *testing.T) {
	t.Parallel()
	for kind, database := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dsn := database(t)
			startTogether(t, func() *gormstore.Store {
				store, err := openKind(kind, dsn)
				must(t, err)
				t.Cleanup(func() { must(t, store.Close()) })
				return store
			})
		})
	}
}

func startTogether(t *testing.T, open func() *gormstore.Store) {
	t.Helper()
	q := memqueue.New(memqueue.Config{})
	store := open()
	must(t, store.Migrate(t.Context()))
	const all = 300
	want := publishAll(t, made(t, store, q), "t", 0, all)
	var j journal
	q.Record(10 * all)
	buses := make([]*cap.Bus, 10)
	for i := range buses {
		buses[i] = made(t, open(), q, serving(inGroup("t", j.handle)), func(o *cap.Options) {
			o.ConsumerCount, o.Concurrency, o.FallbackWindow = 3, 2, 15*time.Second
		})
	}
	var starts sync.WaitGroup
	for _, bus := range buses {
		starts.Go(func() {
			if err := bus.Start(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	settled(t, store.DB(), window)
	j.exactly(t, want)
	if n := len(q.Sent()); n != all {
		t.Errorf("%d messages were sent, want %d", n, all)
	}
	for _, bus := range buses {
		must(t, bus.Stop(t.Context()))
	}
}
