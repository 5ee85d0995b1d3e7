package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
)

// TestC001PhantomPublish: what is rolled back reaches no broker, though its
// transaction stays open long after the publish.
func TestC001PhantomPublish(t *testing.T) {
	t.Parallel()
	var j journal
	s := start(t, file(t), serving(inGroup("t", j.handle)))
	s.queue.Record(10_000)
	const each = 50
	var committed []string
	for i := range each {
		committed = append(committed, fmt.Sprintf("committed-%d", i))
	}
	crowd(2*each, 10, func(i int) {
		id, end := fmt.Sprintf("committed-%d", i/2), error(nil)
		if i%2 == 1 {
			id, end = fmt.Sprintf("rolled-back-%d", i/2), errRollback
		}
		err := s.store.DB().Transaction(func(tx *gorm.DB) error {
			if err := s.bus.Publish(t.Context(), tx, "t", id); err != nil {
				return err
			}
			<-time.After(2 * time.Millisecond) // several looks of the waker
			return end
		})
		if !errors.Is(err, end) {
			t.Errorf("%s: %v", id, err)
		}
	})
	settled(t, s.store.DB(), window)
	j.exactly(t, committed)
	for _, m := range s.queue.Sent() {
		if strings.Contains(string(m.Body), "rolled-back") {
			t.Errorf("%s reached the broker", m.Body)
		}
	}
	if n := number(t, s.store.DB(), "SELECT count(*) FROM cap_published"); n != each {
		t.Errorf("%d rows, want %d", n, each)
	}
}

// TestC005FinishedTransaction: what has ended is not remembered, and a publish
// into it is refused, not swallowed.
func TestC005FinishedTransaction(t *testing.T) {
	t.Parallel()
	var j journal
	s := start(t, file(t), serving(inGroup("#", j.handle)))
	db, err := s.store.DB().DB()
	must(t, err)
	for _, how := range []string{"committed", "rolled back"} {
		inGorm := s.store.DB().Begin()
		must(t, inGorm.Error)
		must(t, s.bus.Publish(t.Context(), inGorm, "t", how+" gorm"))
		end := map[string]func() error{"committed": func() error { return inGorm.Commit().Error }, "rolled back": func() error { return inGorm.Rollback().Error }}[how]
		must(t, end())
		inSQL, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		must(t, s.bus.Publish(t.Context(), inSQL, "t", how+" sql"))
		end = map[string]func() error{"committed": inSQL.Commit, "rolled back": inSQL.Rollback}[how]
		must(t, end())
		must(t, s.bus.Publish(t.Context(), cap.NoTx, "t2", how+" second"))
		for _, tx := range []any{inGorm, inSQL} {
			for _, ctx := range []context.Context{t.Context(), cap.ContextWithTx(t.Context(), tx)} {
				if err := s.bus.Publish(ctx, tx, "t3", "swallowed"); !errors.Is(err, sql.ErrTxDone) {
					t.Errorf("%s %T: %v, want ErrTxDone", how, tx, err)
				}
			}
			if err := s.bus.Publish(cap.ContextWithTx(t.Context(), tx), nil, "t3", "swallowed"); !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("%s %T of the context: %v, want ErrTxDone", how, tx, err)
			}
		}
	}
	settled(t, s.store.DB(), window)
	j.exactly(t, []string{"committed gorm", "committed sql", "committed second", "rolled back second"})
	if n := number(t, s.store.DB(), "SELECT count(*) FROM cap_published WHERE name = 't3'"); n != 0 {
		t.Errorf("%d rows of refused publishes", n)
	}
}

// TestC006TransactionOfTheContext: it goes wherever the context goes, and where
// it does not go, Publish says so.
func TestC006TransactionOfTheContext(t *testing.T) {
	t.Parallel()
	var j journal
	s := start(t, file(t), serving(inGroup("t", j.handle)))
	want := []string{"goroutine", "same", "timeout", "without cancel"}
	for _, end := range []error{errRollback, nil} {
		err := s.store.DB().Transaction(func(tx *gorm.DB) error {
			ctx := cap.ContextWithTx(t.Context(), tx)
			timeout, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			var inner sync.WaitGroup
			errs := make([]error, 4)
			errs[0] = s.bus.Publish(ctx, nil, "t", "same")
			inner.Go(func() { errs[1] = s.bus.Publish(ctx, nil, "t", "goroutine") })
			inner.Wait()
			errs[2] = s.bus.Publish(context.WithoutCancel(ctx), nil, "t", "without cancel")
			errs[3] = s.bus.Publish(timeout, nil, "t", "timeout")
			if err := s.bus.Publish(t.Context(), nil, "t", "nowhere"); !errors.Is(err, cap.ErrNoTx) || !strings.Contains(err.Error(), "cap.NoTx") {
				t.Errorf("a context without a transaction: %v, want ErrNoTx and what to do", err)
			}
			if n := number(t, s.store.DB(), "SELECT count(*) FROM cap_published"); n != 0 {
				t.Errorf("%d rows are seen before the end", n)
			}
			return errors.Join(append(errs, end)...)
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
	}
	settled(t, s.store.DB(), window)
	j.exactly(t, want)
}

// TestC007ConcurrentTransactions: one publisher serves many transactions at
// once, of which every other is rolled back, and mixes none up.
func TestC007ConcurrentTransactions(t *testing.T) {
	t.Parallel()
	var j journal
	s := start(t, file(t), serving(inGroup("t", j.handle)))
	var mu sync.Mutex
	var want []string
	crowd(200, 20, func(i int) {
		var ids []string
		for k := range 5 {
			ids = append(ids, fmt.Sprintf("%d-%d", i, k))
		}
		err := s.store.DB().Transaction(func(tx *gorm.DB) error {
			for _, id := range ids {
				if err := s.bus.Publish(t.Context(), tx, "t", id); err != nil {
					return err
				}
				<-time.After(time.Duration(rand.IntN(300)) * time.Microsecond) //nolint:gosec // load
			}
			if i%2 == 1 {
				return errRollback
			}
			return nil
		})
		if i%2 == 1 && !errors.Is(err, errRollback) || i%2 == 0 && err != nil {
			t.Errorf("transaction %d: %v", i, err)
		}
		if i%2 == 0 {
			mu.Lock()
			defer mu.Unlock()
			want = append(want, ids...)
		}
	})
	settled(t, s.store.DB(), window)
	j.exactly(t, want)
}

// slowly makes one INSERT into the outbox take some hundred milliseconds.
const slowly = `CREATE TRIGGER slowly BEFORE INSERT ON cap_published WHEN NEW.name = 'slow' BEGIN
	SELECT max(x) FROM (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 100000) SELECT x FROM c); END`

// TestC013ContextEndsAtABadMoment: a message is sent if, and only if, the row of
// its transaction is there, whatever the commit returned.
func TestC013ContextEndsAtABadMoment(t *testing.T) {
	t.Parallel()
	var j journal
	s := start(t, file(t), serving(inGroup("#", func(ctx context.Context, o order) error { return j.handle(ctx, o.ID) })))
	must(t, s.store.DB().Exec(slowly).Error)
	write := func(topic, id string, moment func(when string, cancel func())) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tx := s.store.DB().WithContext(ctx).Begin()
		if tx.Error != nil {
			return tx.Error
		}
		defer tx.Rollback() // after the commit it does nothing
		if err := tx.Exec("INSERT INTO orders VALUES (?)", id).Error; err != nil {
			return err
		}
		moment("before publish", cancel)
		if err := s.bus.Publish(ctx, tx, topic, order{id}); err != nil {
			return err
		}
		moment("before commit", cancel)
		err := tx.Commit().Error
		moment("after commit", cancel)
		return err
	}
	at := func(moment string) func(string, func()) {
		return func(when string, cancel func()) {
			if when == moment {
				cancel()
			}
		}
	}
	during := func(moment string, wait time.Duration) func(string, func()) {
		return func(when string, cancel func()) {
			if when == moment {
				time.AfterFunc(wait, cancel)
			}
		}
	}
	for _, moment := range []string{"before publish", "before commit"} {
		if err := write("t", moment, at(moment)); err == nil {
			t.Errorf("%s: no error", moment)
		}
	}
	if err := write("slow", "during publish", during("before publish", 20*time.Millisecond)); err == nil {
		t.Error("during publish: no error of publish or commit")
	}
	must(t, write("t", "after commit", at("after commit")))
	outcomes := map[bool]int{}
	for i := range 100 {
		wait := time.Duration(rand.IntN(100)) * time.Microsecond //nolint:gosec // any moment of the commit
		outcomes[write("t", fmt.Sprint("during commit ", i), during("before commit", wait)) == nil]++
	}
	t.Logf("commits that were told to have succeeded: %d, failed: %d", outcomes[true], outcomes[false])
	settled(t, s.store.DB(), window)
	there := column(t, s.store.DB(), "SELECT id FROM orders")
	j.exactly(t, there)
	if len(there) < outcomes[true]+1 || !slices.Contains(there, "after commit") {
		t.Errorf("%d orders, of %d that were told to be committed", len(there), outcomes[true]+1)
	}
	for _, moment := range []string{"before publish", "during publish", "before commit"} {
		if slices.Contains(there, moment) {
			t.Errorf("the order whose context ended %s is there", moment)
		}
	}
}

// TestC015PublisherUsedAgain: the second and the third transaction of a
// publisher, of a session and of one goroutine are noticed as the first was.
func TestC015PublisherUsedAgain(t *testing.T) {
	t.Parallel()
	var j journal
	s := start(t, file(t), serving(inGroup("t", j.handle)), func(o *cap.Options) {
		o.PollInterval, o.FallbackWindow = time.Minute, 2*time.Minute
	})
	publisher := cap.For[*gorm.DB](s.bus)
	session := s.store.DB().Session(&gorm.Session{PrepareStmt: true})
	ctx := t.Context()
	var want []string
	for i := range 3 {
		first, second := fmt.Sprint("first of ", i), fmt.Sprint("second of ", i)
		must(t, session.Transaction(func(tx *gorm.DB) error {
			if err := publisher.Publish(ctx, tx, "t", first); err != nil {
				return err
			}
			// What an application may do between: an inner transaction.
			return tx.Transaction(func(tx *gorm.DB) error { return publisher.Publish(ctx, tx, "t", second) })
		}))
		want = append(want, first, second)
		j.wait(t, len(want)) // patience is half a poll
	}
	j.exactly(t, want)
}
