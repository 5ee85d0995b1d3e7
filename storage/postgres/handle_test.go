package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// handled runs a handler as the engine does, and returns its error, or that of
// what follows it.
func handled(t *testing.T, s *gormstore.Store, h func(context.Context, int) error) error {
	t.Helper()
	m := join(t, s, storage.Inbox)
	in := incoming(time.Now().String())
	_, err := m.Accept(t.Context(), in)
	must(t, err)
	tx, err := s.Begin(t.Context())
	must(t, err)
	err = h(storage.ContextWithTx(t.Context(), func() (storage.Tx, error) { return tx, nil }), 7)
	if err == nil {
		err = tx.Settle(t.Context(), m, storage.Outcome{ID: in.ID, Kind: storage.Succeed, After: time.Hour})
	}
	if err == nil {
		err = tx.Commit()
	}
	if rb := tx.Rollback(); rb != nil && err == nil {
		t.Error(rb)
	}
	settled := count(t, s, `SELECT count(*) FROM cap_received WHERE id = ? AND expires_at IS NOT NULL`, in.ID.String())
	if (err == nil) != (settled == 1) {
		t.Errorf("error %v, and %d rows settled", err, settled)
	}
	return err
}

// eachStore runs a test on the stores that differ in how they know of the end of
// a transaction.
func eachStore(t *testing.T, f func(t *testing.T, s *gormstore.Store)) {
	t.Helper()
	stores := map[string]func(t *testing.T) *gormstore.Store{
		"opened": func(t *testing.T) *gormstore.Store { t.Helper(); return newStore(t, quiet()) },
		"ordinary": func(t *testing.T) *gormstore.Store {
			t.Helper()
			s := onPool(t, newDatabase(t), gormstore.Config{})
			must(t, s.Migrate(t.Context()))
			return s
		},
		"ordinary, prepared": func(t *testing.T) *gormstore.Store {
			t.Helper()
			base := onPool(t, newDatabase(t), gormstore.Config{})
			must(t, base.Migrate(t.Context()))
			s := gormstore.New(base.DB().Session(&gorm.Session{PrepareStmt: true}), gormstore.Config{})
			t.Cleanup(func() { must(t, s.Close()) })
			return s
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			run(t, s, `CREATE TABLE x (a int)`)
			f(t, s)
		})
	}
}

// TestHandlersWorkInTheInboxTransaction: what they write is there once, and only
// with the success of their message.
func TestHandlersWorkInTheInboxTransaction(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s *gormstore.Store) {
		t.Helper()
		no := errors.New("no")
		must(t, handled(t, s, gormstore.Handle(func(ctx context.Context, tx *gorm.DB, msg int) error {
			w, err := s.Bind(tx) //nolint:contextcheck // it does no I/O
			must(t, err)
			must(t, w.Append(ctx, outgoing(0)))
			err = tx.Transaction(func(tx *gorm.DB) error {
				must(t, tx.Exec("INSERT INTO x VALUES (0)").Error)
				return no
			})
			if !errors.Is(err, no) {
				t.Error(err)
			}
			return tx.Transaction(func(tx *gorm.DB) error { return tx.Exec("INSERT INTO x VALUES (?)", msg).Error })
		})))
		must(t, handled(t, s, gormstore.SQLHandle(func(ctx context.Context, tx *sql.Tx, msg int) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO x VALUES ($1)", msg)
			return err
		})))
		err := handled(t, s, gormstore.Handle(func(_ context.Context, tx *gorm.DB, _ int) error {
			must(t, tx.Exec("INSERT INTO x VALUES (1)").Error)
			return no
		}))
		if !errors.Is(err, no) {
			t.Error(err)
		}
		if n := count(t, s, "SELECT count(*) FROM x WHERE a = 7"); n != 2 || count(t, s, "SELECT count(*) FROM x") != 2 {
			t.Errorf("%d rows", n)
		}
		if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
}

// TestAHandlerThatEndsItsTransaction, or lets a statement in it fail, is not
// settled as succeeded, whether it tells or not. In a nested transaction a
// statement may fail.
func TestAHandlerThatEndsItsTransaction(t *testing.T) {
	t.Parallel()
	inner := func(tx *gorm.DB) {
		_ = tx.Transaction(func(tx *gorm.DB) error { return tx.Exec("SELECT 1/0").Error })
	}
	exec := func(text string) func(*gorm.DB) { return func(tx *gorm.DB) { tx.Session(&gorm.Session{}).Exec(text) } }
	eachStore(t, func(t *testing.T, s *gormstore.Store) {
		t.Helper()
		for name, c := range map[string]struct {
			then func(*gorm.DB)
			done bool
			rows int // that stay
		}{
			"nothing":           {func(*gorm.DB) {}, true, 1},
			"inner":             {inner, true, 1},
			"divide":            {exec("SELECT 1/0"), false, 0},
			"no table":          {exec("SELECT * FROM nowhere"), false, 0},
			"commit":            {exec("COMMIT"), false, 1}, // nobody can take it back
			"rollback":          {exec("ROLLBACK"), false, 0},
			"divide and commit": {func(tx *gorm.DB) { exec("SELECT 1/0")(tx); exec("COMMIT")(tx) }, false, 0},
			"terminated":        {exec("SELECT pg_terminate_backend(pg_backend_pid())"), false, 0},
		} {
			run(t, s, "TRUNCATE x")
			err := handled(t, s, gormstore.Handle(func(_ context.Context, tx *gorm.DB, msg int) error {
				must(t, tx.Exec("INSERT INTO x VALUES (?)", msg).Error)
				c.then(tx)
				return nil
			}))
			if (err == nil) != c.done {
				t.Errorf("%s: %v", name, err)
			}
			if n := count(t, s, "SELECT count(*) FROM x"); n != c.rows {
				t.Errorf("%s: %d rows", name, n)
			}
			if err != nil && name != "terminated" && !errors.Is(err, storage.ErrTxDone) {
				t.Errorf("%s is not ErrTxDone: %v", name, err)
			}
		}
	})
}

// TestTheContextBoundsATransactionsLife: its end rolls back, and gives the
// connection free.
func TestTheContextBoundsATransactionsLife(t *testing.T) {
	t.Parallel()
	s := newStore(t, quiet())
	m := join(t, s, storage.Inbox)
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := s.Begin(ctx)
	must(t, err)
	w, err := s.Bind(tx.Value())
	must(t, err)
	must(t, tx.Append(t.Context(), outgoing(0)))
	cancel()
	for !w.(storage.EndProber).Ended() { //nolint:revive // until the rollback has come about
	}
	if err := tx.Settle(t.Context(), m, storage.Outcome{Kind: storage.Succeed}); !errors.Is(err, storage.ErrTxDone) {
		t.Error(err)
	}
	if err := tx.Commit(); err == nil {
		t.Error("committed")
	}
	must(t, tx.Rollback())
	if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// TestTransactionsAreReadCommitted, whatever the database's default is.
func TestTransactionsAreReadCommitted(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"serializable", "repeatable read"} {
		dsn := newDatabase(t)
		u, err := pgx.ParseConfig(dsn)
		must(t, err)
		onServer(t, dsn, `ALTER DATABASE `+u.Database+` SET default_transaction_isolation = '`+level+`'`)
		s := open(t, dsn, quiet())
		must(t, s.Migrate(t.Context()))
		everything(t, s)
		tx, err := s.Begin(t.Context())
		must(t, err)
		var got string
		must(t, tx.Value().(*gorm.DB).Raw(`SHOW transaction_isolation`).Row().Scan(&got))
		must(t, tx.Rollback())
		if got != "read committed" {
			t.Errorf("a handler works in %s", got)
		}
	}
}
