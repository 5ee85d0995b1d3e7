package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
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

// way is one way of an application to end a transaction.
type way struct {
	name   string
	commit bool
	run    func(t *testing.T, s *service, id string)
}

// write is what the application does in each way: its own row and the message.
func (s *service) write(ctx context.Context, tx *gorm.DB, id string) error {
	if err := tx.Exec("INSERT INTO orders VALUES (?)", id).Error; err != nil {
		return err
	}
	return s.bus.Publish(ctx, tx, "order.placed", order{id})
}

// closure runs a gorm transaction over a session of the store's database.
func closure(session *gorm.Session, end func(tx *gorm.DB) error) func(*testing.T, *service, string) {
	return func(t *testing.T, s *service, id string) {
		defer func() {
			if p := recover(); p != nil && p != "on purpose" {
				panic(p)
			}
		}()
		ctx := t.Context()
		err := s.store.DB().Session(session).WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := s.write(ctx, tx, id); err != nil {
				return err
			}
			return end(tx)
		})
		if err != nil && !errors.Is(err, errRollback) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func ok(*gorm.DB) error    { return nil }
func fails(*gorm.DB) error { return errRollback }

// sqlTx runs a transaction of database/sql.
func sqlTx(end func(*sql.Tx) error) func(*testing.T, *service, string) {
	return func(t *testing.T, s *service, id string) {
		ctx := t.Context()
		db, err := s.store.DB().DB()
		if err != nil {
			t.Error(err)
			return
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (?)", id); err == nil {
			err = s.bus.Publish(ctx, tx, "order.placed", order{id})
		}
		if err != nil {
			t.Error(err)
		}
		if err := end(tx); err != nil {
			t.Error(err)
		}
	}
}

func ways() []way {
	plain := &gorm.Session{}
	return []way{
		{"gorm closure", true, closure(plain, ok)},
		{"gorm prepared statements", true, closure(&gorm.Session{PrepareStmt: true}, ok)},
		{"gorm without default transaction", true, closure(&gorm.Session{SkipDefaultTransaction: true}, ok)},
		{"gorm new session inside", true, func(t *testing.T, s *service, id string) {
			err := s.store.DB().Transaction(func(tx *gorm.DB) error {
				return s.write(t.Context(), tx.Session(&gorm.Session{NewDB: true}), id)
			})
			if err != nil {
				t.Error(err)
			}
		}},
		{"gorm savepoint kept", true, func(t *testing.T, s *service, id string) {
			err := s.store.DB().Transaction(func(tx *gorm.DB) error {
				return tx.Transaction(func(inner *gorm.DB) error { return s.write(t.Context(), inner, id) })
			})
			if err != nil {
				t.Error(err)
			}
		}},
		{"gorm begin and commit", true, func(t *testing.T, s *service, id string) {
			tx := s.store.DB().Begin()
			if err := errors.Join(s.write(t.Context(), tx, id), tx.Commit().Error); err != nil {
				t.Error(err)
			}
		}},
		{"committed by another goroutine", true, sqlTx(func(tx *sql.Tx) error {
			done := make(chan error)
			go func() { done <- tx.Commit() }()
			return <-done
		})},
		{"database/sql", true, sqlTx((*sql.Tx).Commit)},
		{"bus.InTx", true, func(t *testing.T, s *service, id string) {
			err := s.bus.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error { return s.write(ctx, tx.(*gorm.DB), id) })
			if err != nil {
				t.Error(err)
			}
		}},
		{"gorm closure fails", false, closure(plain, fails)},
		{"gorm prepared statements fail", false, closure(&gorm.Session{PrepareStmt: true}, fails)},
		{"gorm closure panics", false, closure(plain, func(*gorm.DB) error { panic("on purpose") })},
		{"database/sql rollback", false, sqlTx((*sql.Tx).Rollback)},
		{"gorm savepoint rolled back", false, func(t *testing.T, s *service, id string) {
			err := s.store.DB().Transaction(func(tx *gorm.DB) error {
				err := tx.Transaction(func(inner *gorm.DB) error { return errors.Join(s.write(t.Context(), inner, id), errRollback) })
				if !errors.Is(err, errRollback) {
					t.Error(err)
				}
				return nil // the outer one commits
			})
			if err != nil {
				t.Error(err)
			}
		}},
		{"context ends before the commit", false, func(t *testing.T, s *service, id string) {
			ctx, cancel := context.WithCancel(t.Context())
			if err := s.placeThen(ctx, id, cancel); err == nil {
				t.Errorf("%s was committed", id)
			}
		}},
		{"connection closed before the commit", false, func(t *testing.T, s *service, id string) {
			db, err := s.store.DB().DB()
			if err != nil {
				t.Error(err)
				return
			}
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			tx, err := conn.BeginTx(t.Context(), nil)
			if err == nil {
				err = s.bus.Publish(t.Context(), tx, "order.placed", order{id})
			}
			if err != nil {
				t.Error(err)
			}
			if err := conn.Raw(func(c any) error { return c.(driver.Conn).Close() }); err != nil {
				t.Error(err)
			}
			_ = tx.Rollback() // gives the connection back; it cannot work
			_ = conn.Close()
		}},
	}
}

// TestCommitDecides: a message leaves if, and only if, its transaction commits,
// however that is done; many at once, committed and rolled back side by side.
func TestCommitDecides(t *testing.T) {
	t.Parallel()
	s := start(t, filepath.Join(t.TempDir(), "shop.db"))
	const each = 12 // of 9 ways that commit and 7 that do not: about a hundred of each
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
			all.Go(func() { w.run(t, s, id) })
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
		if w.commit {
			w.run(t, s, w.name)
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
