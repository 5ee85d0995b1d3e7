package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// newEnding is a store with tables in which SQLite can be brought to end a
// transaction, and ways to do so.
func newEnding(t *testing.T) (*gormstore.Store, map[string]func(*sql.Tx) error) {
	t.Helper()
	s := newStore(t)
	must(t, s.DB().Exec("CREATE TABLE x (a)").Error)
	must(t, s.DB().Exec("CREATE TABLE u (a INTEGER PRIMARY KEY)").Error)
	must(t, s.DB().Exec("INSERT INTO u VALUES (1)").Error)
	must(t, s.DB().Exec("CREATE TRIGGER no BEFORE INSERT ON u WHEN NEW.a < 0 BEGIN SELECT RAISE(ROLLBACK, 'no'); END").Error)
	exec := func(query string) func(*sql.Tx) error {
		return func(tx *sql.Tx) error { _, err := tx.ExecContext(t.Context(), query); return err }
	}
	short := func(f func(ctx context.Context, tx *sql.Tx) error) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			return f(ctx, tx)
		}
	}
	return s, map[string]func(*sql.Tx) error{
		"conflict": exec("INSERT OR ROLLBACK INTO u VALUES (1)"),
		"trigger":  exec("INSERT INTO u VALUES (-1)"),
		"interrupted exec": short(func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, endless)
			return err
		}),
		"interrupted query": short(func(ctx context.Context, tx *sql.Tx) error {
			var a int
			return tx.QueryRowContext(ctx, endless+" RETURNING a").Scan(&a)
		}),
		"interrupted statement": short(func(ctx context.Context, tx *sql.Tx) error {
			stmt, err := tx.PrepareContext(ctx, endless)
			must(t, err)
			defer stmt.Close() //nolint:errcheck // it is not there any more
			_, err = stmt.ExecContext(ctx)
			return err
		}),
	}
}

// TestNothingRunsInATransactionThatSQLiteHasEnded: each statement would be
// committed by itself, although the transaction fails.
func TestNothingRunsInATransactionThatSQLiteHasEnded(t *testing.T) {
	t.Parallel()
	const insert = "INSERT INTO x VALUES (2)"
	s, ends := newEnding(t)
	for name, end := range ends {
		tx, err := s.DB().ConnPool.(gorm.TxBeginner).BeginTx(t.Context(), nil)
		must(t, err)
		prepared, err := tx.PrepareContext(t.Context(), insert)
		must(t, err)
		w, err := s.Bind(tx)
		must(t, err)
		_, err = tx.ExecContext(t.Context(), insert)
		must(t, err)
		if end(tx) == nil {
			t.Fatalf("%s: no error", name)
		}
		var a int
		for how, f := range map[string]func() error{
			"exec":      func() error { _, err := tx.ExecContext(t.Context(), insert); return err },
			"query":     func() error { return tx.QueryRowContext(t.Context(), insert+" RETURNING a").Scan(&a) },
			"read":      func() error { return tx.QueryRowContext(t.Context(), "SELECT 1").Scan(&a) },
			"prepare":   func() error { _, err := tx.PrepareContext(t.Context(), insert); return err }, //nolint:sqlclosecheck // there is none
			"statement": func() error { _, err := prepared.ExecContext(t.Context()); return err },
			"rows":      func() error { return prepared.QueryRowContext(t.Context()).Scan(&a) },
			"savepoint": func() error { _, err := tx.ExecContext(t.Context(), "SAVEPOINT y"); return err },
			"begin":     func() error { _, err := tx.ExecContext(t.Context(), "BEGIN"); return err },
			"append":    func() error { return w.Append(t.Context(), outgoing(0)) },
		} {
			if err := f(); !errors.Is(err, sql.ErrTxDone) || !strings.Contains(err.Error(), "the database has ended the transaction") {
				t.Errorf("%s, %s: %v", name, how, err)
			}
		}
		if err := tx.Commit(); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("%s, commit: %v", name, err)
		}
	}
	if n := count(t, s, "SELECT count(*) FROM x") + count(t, s, "SELECT count(*) FROM cap_published"); n != 0 {
		t.Errorf("%d rows of transactions that were rolled back", n)
	}
	must(t, s.DB().Transaction(func(tx *gorm.DB) error { return tx.Exec(insert).Error }))
}

// TestTheEndOfATransactionThatSQLiteHasEnded: whatever comes first after the
// statement, a commit fails, a rollback does not, and the next transaction works.
func TestTheEndOfATransactionThatSQLiteHasEnded(t *testing.T) {
	t.Parallel()
	s, ends := newEnding(t)
	for name, end := range ends {
		for how, f := range map[string]func(tx *sql.Tx){
			"commit": func(tx *sql.Tx) {
				if err := tx.Commit(); !errors.Is(err, sql.ErrTxDone) || !strings.Contains(err.Error(), "the database") {
					t.Errorf("%s: committed: %v", name, err)
				}
			},
			"rollback": func(tx *sql.Tx) { must(t, tx.Rollback()) },
			"rollback after a statement": func(tx *sql.Tx) {
				if _, err := tx.ExecContext(t.Context(), "INSERT INTO x VALUES (3)"); !errors.Is(err, sql.ErrTxDone) {
					t.Errorf("%s: %v", name, err)
				}
				must(t, tx.Rollback())
			},
		} {
			tx, err := s.DB().ConnPool.(gorm.TxBeginner).BeginTx(t.Context(), nil)
			must(t, err)
			if end(tx) == nil {
				t.Fatalf("%s: no error", name)
			}
			f(tx)
			if n := count(t, s, "SELECT count(*) FROM x"); n != 0 {
				t.Errorf("%s, %s: %d rows", name, how, n)
			}
			must(t, s.DB().Transaction(func(tx *gorm.DB) error { return tx.Exec("INSERT INTO x VALUES (4)").Error }))
			must(t, s.DB().Exec("DELETE FROM x").Error)
		}
	}
}

// TestATransactionGoesOnAfterAnErrorThatLeavesIt.
func TestATransactionGoesOnAfterAnErrorThatLeavesIt(t *testing.T) {
	t.Parallel()
	s, _ := newEnding(t)
	must(t, s.DB().Transaction(func(tx *gorm.DB) error {
		must(t, tx.Exec("INSERT INTO x VALUES (1)").Error)
		for _, query := range []string{
			"INSERT INTO u VALUES (1)", "no SQL", "SELECT * FROM missing", "INSERT INTO u VALUES ('text')",
		} {
			if tx.Exec(query).Error == nil {
				t.Errorf("%s: no error", query)
			}
			must(t, tx.Exec("INSERT INTO x VALUES (2)").Error)
		}
		var a []int64
		if tx.Raw("SELECT 1 UNION ALL SELECT abs(-9223372036854775808)").Scan(&a).Error == nil {
			t.Error("no error of the second row")
		}
		must(t, tx.Exec("INSERT INTO x VALUES (3)").Error)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		reading := "SELECT count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n)"
		if err := tx.WithContext(ctx).Raw(reading).Scan(&a).Error; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		return tx.Exec("INSERT INTO x VALUES (4)").Error
	}))
	if n := count(t, s, "SELECT count(*) FROM x"); n != 7 {
		t.Errorf("%d rows", n)
	}
}

// TestAHandlerThatGoesOnAfterAnInterruptedStatementWritesNothing: its message is
// tried again, and would have its effects twice.
func TestAHandlerThatGoesOnAfterAnInterruptedStatementWritesNothing(t *testing.T) {
	t.Parallel()
	s, _ := newEnding(t)
	for _, prepare := range []bool{false, true} {
		own := gormstore.New(s.DB().Session(&gorm.Session{PrepareStmt: prepare}), gormstore.Config{})
		t.Cleanup(func() { must(t, own.Close()) })
		err := handled(t, own, gormstore.Handle(func(_ context.Context, tx *gorm.DB, _ int) error {
			interrupt(t, tx) //nolint:contextcheck // its own is short
			return tx.Exec("INSERT INTO x VALUES (1)").Error
		}))
		if !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("prepared %t: %v", prepare, err)
		}
		m := join(t, own, storage.Inbox)
		in := incoming("careless")
		_, err = m.Accept(t.Context(), in)
		must(t, err)
		tx, err := own.Begin(t.Context())
		must(t, err)
		db := tx.Value().(*gorm.DB)
		interrupt(t, db)
		_ = db.Exec("INSERT INTO x VALUES (2)").Error // the handler does not look
		err = tx.Settle(t.Context(), m, storage.Outcome{ID: in.ID, Kind: storage.Succeed, After: time.Hour})
		if !errors.Is(err, storage.ErrTxDone) {
			t.Error(err)
		}
		must(t, tx.Rollback())
	}
	if n := count(t, s, "SELECT count(*) FROM x"); n != 0 {
		t.Errorf("%d effects", n)
	}
}

// TestTheConnectionOfTheDriverCanBeReached: a backup needs it.
func TestTheConnectionOfTheDriverCanBeReached(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	db, err := s.DB().DB()
	must(t, err)
	must(t, db.PingContext(t.Context()))
	conn, err := db.Conn(t.Context())
	must(t, err)
	defer conn.Close() //nolint:errcheck // it goes back
	must(t, conn.Raw(func(c any) error {
		u, ok := c.(interface{ Unwrap() driver.Conn })
		if !ok {
			t.Fatalf("%T", c)
		}
		b, err := u.Unwrap().(interface{ Serialize() ([]byte, error) }).Serialize()
		if err == nil && !strings.HasPrefix(string(b), "SQLite format 3") {
			t.Error("no database")
		}
		return err
	}))
}
