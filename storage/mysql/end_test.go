package mysql_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// ended is a transaction that the server has ended for a deadlock, and whose
// owner has not looked at the error.
func ended(t *testing.T, pool *sql.DB, tx *sql.Tx) {
	t.Helper()
	const deadlock = 1213
	change := func(tx *sql.Tx, from, to int) error {
		_, err := tx.ExecContext(t.Context(), "UPDATE business SET v = v + 1 WHERE id BETWEEN ? AND ?", from, to)
		return err
	}
	other, err := pool.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { must(t, other.Rollback()) }()
	must(t, change(other, 2, 5)) // the one that has changed less is the victim
	must(t, change(tx, 1, 1))
	waited := make(chan error, 1)
	go func() { waited <- change(tx, 2, 2) }()
	must(t, change(other, 1, 1))
	var answer *driver.MySQLError
	if err := <-waited; !errors.As(err, &answer) || answer.Number != deadlock {
		t.Fatalf("the victim of the deadlock: %v", err)
	}
}

func business(t *testing.T, s *gormstore.Store) *sql.DB {
	t.Helper()
	for _, q := range []string{
		"CREATE TABLE business (id INT PRIMARY KEY, v INT NOT NULL)",
		"INSERT INTO business VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)",
	} {
		must(t, s.DB().Exec(q).Error)
	}
	pool, err := s.DB().DB()
	must(t, err)
	return pool
}

// TestPublishAfterADeadlock that the caller overlooked: what he writes is
// committed piece by piece, but no message.
func TestPublishAfterADeadlock(t *testing.T) {
	t.Parallel()
	for _, params := range []string{"interpolateParams=true", "interpolateParams=false", "sql_mode=%27%27"} {
		database := newDatabase(t, "")
		must(t, open(t, dsn(t, database)).Migrate(t.Context()))
		s := open(t, dsn(t, database, params)) // it has not asked the server anything
		pool := business(t, s)
		given := outgoing(0)
		given.GivenID = true
		for _, recs := range [][]*storage.Record{{outgoing(0)}, {outgoing(0), outgoing(0)}, {given, outgoing(0)}} {
			tx, err := pool.BeginTx(t.Context(), nil)
			must(t, err)
			w, err := s.Bind(tx)
			must(t, err)
			ended(t, pool, tx)
			if err := w.Append(t.Context(), recs...); !errors.Is(err, storage.ErrTxDone) {
				t.Errorf("%s: append of %d after a deadlock: %v, want ErrTxDone", params, len(recs), err)
			}
			must(t, tx.Commit())
		}
		if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 0 {
			t.Errorf("%s: %d messages were published", params, n)
		}
	}
}

// TestADeadlockInAppendItself ends the transaction, and says so.
func TestADeadlockInAppendItself(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	pool := business(t, s)
	given := outgoing(0)
	given.GivenID = true
	tx, err := pool.BeginTx(t.Context(), nil)
	must(t, err)
	w, err := s.Bind(tx)
	must(t, err)
	other, err := pool.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { must(t, other.Rollback()) }()
	ow, err := s.Bind(other)
	must(t, err)
	must(t, ow.Append(t.Context(), given))
	_, err = other.ExecContext(t.Context(), "UPDATE business SET v = 1 WHERE id > 1")
	must(t, err)
	_, err = tx.ExecContext(t.Context(), "UPDATE business SET v = 1 WHERE id = 1")
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- w.Append(t.Context(), given) }()
	_, err = other.ExecContext(t.Context(), "UPDATE business SET v = 1 WHERE id = 1")
	must(t, err)
	if err := <-done; !errors.Is(err, storage.ErrTxDone) {
		t.Errorf("append as the victim of a deadlock: %v, want ErrTxDone", err)
	}
	must(t, tx.Rollback())
}

// TestSettleAfterADeadlock that the handler overlooked fails, and nothing of the
// message is final.
func TestSettleAfterADeadlock(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	pool := business(t, s)
	m := join(t, s, storage.Inbox)
	rec := incoming("1")
	_, err := m.Accept(t.Context(), rec)
	must(t, err)
	tx, err := s.Begin(t.Context())
	must(t, err)
	ended(t, pool, tx.Value().(*gorm.DB).Statement.ConnPool.(*sql.Tx))
	err = tx.Settle(t.Context(), m, storage.Outcome{ID: rec.ID, Kind: storage.Succeed, After: time.Hour})
	if !errors.Is(err, storage.ErrTxDone) {
		t.Errorf("settle after a deadlock: %v, want ErrTxDone", err)
	}
	must(t, tx.Rollback())
	if got := due(t, m, inLane(5)); len(got) != 1 {
		t.Errorf("%d rows are due, want the one", len(got))
	}
}

// TestATransactionThatIsNone: after a COMMIT past the library the next publish
// is refused.
func TestATransactionThatIsNone(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	err := s.DB().Transaction(func(tx *gorm.DB) error {
		must(t, tx.Exec("COMMIT").Error)
		w, err := s.Bind(tx)
		must(t, err)
		return w.Append(t.Context(), outgoing(0))
	})
	if !errors.Is(err, storage.ErrTxDone) {
		t.Errorf("append after COMMIT: %v, want ErrTxDone", err)
	}
	if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 0 {
		t.Errorf("%d messages were published", n)
	}
}

// TestNestedTransactionsOfGorm, in its prepared-statement mode as well.
func TestNestedTransactionsOfGorm(t *testing.T) {
	t.Parallel()
	for _, prepare := range []bool{false, true} {
		db, err := gorm.Open(gormmysql.Open(dsn(t, newDatabase(t, ""))), &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
		must(t, err)
		pool, err := db.DB()
		must(t, err)
		s := gormstore.New(db, gormstore.Config{})
		t.Cleanup(func() {
			must(t, s.Close())
			must(t, pool.Close())
		})
		must(t, s.Migrate(t.Context()))
		kept := outgoing(0)
		must(t, db.Transaction(func(tx *gorm.DB) error {
			appendTo(t, s, tx, kept)
			undo := errors.New("undo")
			err := tx.Transaction(func(inner *gorm.DB) error {
				appendTo(t, s, inner, outgoing(0))
				return undo
			})
			if !errors.Is(err, undo) {
				return err
			}
			return nil
		}))
		got, err := join(t, s, storage.Outbox).TakeOver(t.Context(), outLane(5))
		must(t, err)
		if len(got) != 1 || got[0].ID != kept.ID {
			t.Errorf("prepared %t: %d messages were published, want the one that was not undone", prepare, len(got))
		}
	}
}

func appendTo(t *testing.T, s *gormstore.Store, tx any, recs ...*storage.Record) {
	t.Helper()
	w, err := s.Bind(tx)
	must(t, err)
	must(t, w.Append(t.Context(), recs...))
}
