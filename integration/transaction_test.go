package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
)

// way is one way of an application to end a transaction. It returns what went
// wrong, not how the transaction ended.
type way struct {
	name   string
	commit bool
	run    func(ctx context.Context, s *service, id string) error
}

// write is what the application does in each way: its own row and the message.
func (s *service) write(ctx context.Context, tx *gorm.DB, id string) error {
	if err := tx.Exec("INSERT INTO orders VALUES (?)", id).Error; err != nil {
		return err
	}
	return s.bus.Publish(ctx, tx, "order.placed", order{id})
}

// closure runs a gorm transaction in a session of the store's database.
func closure(session *gorm.Session, end func(*gorm.DB) error) func(context.Context, *service, string) error {
	return func(ctx context.Context, s *service, id string) (err error) {
		defer func() {
			if p := recover(); p != nil && p != "on purpose" {
				panic(p)
			}
		}()
		err = s.store.DB().Session(session).WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			return errors.Join(s.write(ctx, tx, id), end(tx))
		})
		if errors.Is(err, errRollback) {
			err = nil
		}
		return err
	}
}

func ok(*gorm.DB) error     { return nil }
func fails(*gorm.DB) error  { return errRollback }
func panics(*gorm.DB) error { panic("on purpose") }

// sqlTx runs a transaction of database/sql.
func sqlTx(end func(*sql.Tx) error) func(context.Context, *service, string) error {
	return func(ctx context.Context, s *service, id string) error {
		db, err := s.store.DB().DB()
		if err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (?)", id); err == nil {
			err = s.bus.Publish(ctx, tx, "order.placed", order{id})
		}
		return errors.Join(err, end(tx))
	}
}

func commitElsewhere(tx *sql.Tx) error {
	done := make(chan error)
	go func() { done <- tx.Commit() }()
	return <-done
}

func newSession(ctx context.Context, s *service, id string) error {
	return s.store.DB().Transaction(func(tx *gorm.DB) error {
		return s.write(ctx, tx.Session(&gorm.Session{NewDB: true}), id)
	})
}

// savepoint writes in a nested transaction, of which it keeps the result or not;
// the outer one commits.
func savepoint(keep bool) func(context.Context, *service, string) error {
	return func(ctx context.Context, s *service, id string) error {
		return s.store.DB().Transaction(func(tx *gorm.DB) error {
			err := tx.Transaction(func(inner *gorm.DB) error {
				if err := s.write(ctx, inner, id); err != nil || keep {
					return err
				}
				return errRollback
			})
			if errors.Is(err, errRollback) {
				return nil
			}
			return err
		})
	}
}

func beginAndCommit(ctx context.Context, s *service, id string) error {
	tx := s.store.DB().Begin()
	return errors.Join(s.write(ctx, tx, id), tx.Commit().Error)
}

func inTx(ctx context.Context, s *service, id string) error {
	return s.bus.InTx(ctx, func(ctx context.Context, tx cap.Tx) error { return s.write(ctx, tx.(*gorm.DB), id) })
}

func contextEnds(ctx context.Context, s *service, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	if err := s.placeThen(ctx, id, cancel); err == nil {
		return errors.New("it was committed")
	}
	return nil
}

func ways() []way {
	plain, prepared := &gorm.Session{}, &gorm.Session{PrepareStmt: true}
	return []way{
		{"gorm closure", true, closure(plain, ok)},
		{"gorm prepared statements", true, closure(prepared, ok)},
		{"gorm without default transaction", true, closure(&gorm.Session{SkipDefaultTransaction: true}, ok)},
		{"gorm new session inside", true, newSession},
		{"gorm savepoint kept", true, savepoint(true)},
		{"gorm begin and commit", true, beginAndCommit},
		{"database/sql", true, sqlTx((*sql.Tx).Commit)},
		{"committed by another goroutine", true, sqlTx(commitElsewhere)},
		{"bus.InTx", true, inTx},
		{"gorm closure fails", false, closure(plain, fails)},
		{"gorm prepared statements fail", false, closure(prepared, fails)},
		{"gorm closure panics", false, closure(plain, panics)},
		{"gorm savepoint rolled back", false, savepoint(false)},
		{"database/sql rollback", false, sqlTx((*sql.Tx).Rollback)},
		{"context ends before the commit", false, contextEnds},
	}
}

// TestCommitDecides: a message leaves if, and only if, its transaction commits,
// however that is done; many at once, committed and rolled back side by side.
func TestCommitDecides(t *testing.T) {
	t.Parallel()
	s := start(t, filepath.Join(t.TempDir(), "shop.db"))
	// Of 9 ways that commit and 6 that do not: more than a hundred of each. That a
	// connection closes in a transaction shows TestKilledAtRandomMoments.
	const each = 17
	var committed []string
	var all sync.WaitGroup
	for i, w := range ways() {
		for n := range each {
			id := fmt.Sprintf("%d-%d %s", i, n, w.name)
			if w.commit {
				committed = append(committed, id)
			} else {
				id = "rolled-back-" + id
			}
			all.Go(func() {
				if err := w.run(t.Context(), s, id); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			})
		}
	}
	all.Wait()
	settled(t, s.store.DB(), window)
	verify(t, s.store.DB())
	got := column(t, s.store.DB(), "SELECT id FROM effects")
	slices.Sort(got)
	slices.Sort(committed)
	if !slices.Equal(got, committed) {
		t.Errorf("handled %d orders, committed %d; first difference near %q", len(got), len(committed), difference(got, committed))
	}
	if n := number(t, s.store.DB(), "SELECT count(*) FROM cap_published WHERE body LIKE '%rolled-back%'"); n != 0 {
		t.Errorf("%d rows of transactions that were rolled back", n)
	}
}

func difference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[i] + " / " + b[i]
		}
	}
	return "the end"
}

// TestWakeUpBeatsThePoll: the end of a transaction is noticed, however it ends
// and however long it took: the handler runs long before the next poll.
func TestWakeUpBeatsThePoll(t *testing.T) {
	t.Parallel()
	s := start(t, filepath.Join(t.TempDir(), "shop.db"), func(o *cap.Options) {
		o.PollInterval, o.FallbackWindow = 30*time.Second, time.Minute
	})
	for _, w := range ways() {
		if !w.commit {
			continue
		}
		if err := w.run(t.Context(), s, w.name); err != nil {
			t.Errorf("%s: %v", w.name, err)
		}
	}
	tx := s.store.DB().Begin()
	if err := s.write(t.Context(), tx, "open for a second"); err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Second)
	if err := tx.Commit().Error; err != nil {
		t.Fatal(err)
	}
	settled(t, s.store.DB(), 3*time.Second) // a tenth of the poll
	verify(t, s.store.DB())
}

// TestWrongTransaction: each is refused with an error that says what was given
// and what is accepted, and no SQL runs: the transaction beside stays usable.
func TestWrongTransaction(t *testing.T) {
	t.Parallel()
	s, err := newService(t.Context(), filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.store.Close() })
	db, err := s.store.DB().DB()
	if err != nil {
		t.Fatal(err)
	}
	finished := s.store.DB().Begin()
	finished.Commit()
	doneSQL, err := db.Begin() //nolint:noctx // the short form is what is tested
	if err != nil {
		t.Fatal(err)
	}
	if err := doneSQL.Rollback(); err != nil {
		t.Fatal(err)
	}
	var nilGorm *gorm.DB
	var nilTx *sql.Tx
	tx := s.store.DB().Begin()
	broken := tx.Session(&gorm.Session{})
	_ = broken.AddError(errors.New("an earlier statement failed"))
	for _, c := range []struct {
		name string
		tx   any
		is   error
		says []string
	}{
		{"nil", nil, cap.ErrNoTx, []string{"nil", "cap.NoTx"}},
		{"nil *gorm.DB", nilGorm, cap.ErrNoTx, []string{"*gorm.DB", "cap.NoTx"}},
		{"nil *sql.Tx", nilTx, cap.ErrNoTx, []string{"*sql.Tx", "cap.NoTx"}},
		{"*sql.DB", db, nil, []string{"*sql.DB", "*sql.Tx", "*gorm.DB"}},
		{"*gorm.DB outside", s.store.DB(), nil, []string{"*gorm.DB", "transaction"}},
		{"finished *gorm.DB", finished, sql.ErrTxDone, []string{"ended"}},
		{"finished *sql.Tx", doneSQL, sql.ErrTxDone, []string{"ended"}},
		{"*gorm.DB with an error", broken, nil, []string{"an earlier statement failed"}},
		{"*gorm.DB in DryRun", tx.Session(&gorm.Session{DryRun: true}), nil, []string{"DryRun"}},
		{"a string", "tx", nil, []string{"string", "*sql.Tx", "*gorm.DB"}},
	} {
		err := s.bus.Publish(t.Context(), c.tx, "order.placed", order{"x"})
		if err == nil || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %v", c.name, err, c.is)
			continue
		}
		for _, word := range append(c.says, "cap: publish order.placed: ") {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", c.name, err, word)
			}
		}
	}
	if err := errors.Join(s.write(t.Context(), tx, "usable"), tx.Commit().Error); err != nil {
		t.Errorf("the transaction beside cannot be used any more: %v", err)
	}
	if got := column(t, s.store.DB(), "SELECT id FROM orders"); len(got) != 1 || number(t, s.store.DB(), "SELECT count(*) FROM cap_published") != 1 {
		t.Errorf("rows after all: %q", got)
	}
}
