package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

type ctxKey struct{}

// handled runs a handler as the engine does, and returns its error.
func handled(t *testing.T, s *gormstore.Store, h func(context.Context, int) error) error {
	t.Helper()
	m := join(t, s, storage.Inbox)
	in := incoming(time.Now().String())
	_, err := m.Accept(t.Context(), in)
	must(t, err)
	tx, err := s.Begin(t.Context())
	must(t, err)
	defer func() { must(t, tx.Rollback()) }()
	ctx := context.WithValue(t.Context(), ctxKey{}, "here")
	err = h(storage.ContextWithTx(ctx, func() (storage.Tx, error) { return tx, nil }), 7)
	if err != nil {
		return err
	}
	must(t, tx.Settle(t.Context(), m, storage.Outcome{ID: in.ID, Kind: storage.Succeed, After: time.Hour}))
	must(t, tx.Commit())
	return nil
}

func TestHandlersWorkInTheInboxTransaction(t *testing.T) {
	t.Parallel()
	for _, prepare := range []bool{false, true} {
		base := newStore(t)
		must(t, base.DB().Exec("CREATE TABLE x (a)").Error)
		s := gormstore.New(base.DB().Session(&gorm.Session{PrepareStmt: prepare}), gormstore.Config{})
		t.Cleanup(func() { must(t, s.Close()) })
		no := errors.New("no")
		must(t, handled(t, s, gormstore.Handle(func(ctx context.Context, tx *gorm.DB, msg int) error {
			if ctx.Value(ctxKey{}) != "here" || tx.Statement.Context != ctx {
				t.Error("the transaction does not carry the handler's context")
			}
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
			_, err := tx.ExecContext(ctx, "INSERT INTO x VALUES (?)", msg)
			return err
		})))
		if err := handled(t, s, gormstore.Handle(func(_ context.Context, tx *gorm.DB, _ int) error {
			must(t, tx.Exec("INSERT INTO x VALUES (1)").Error)
			return no
		})); !errors.Is(err, no) {
			t.Error(err)
		}
		if n := count(t, base, "SELECT count(*) FROM x WHERE a = 7"); n != 2 || count(t, base, "SELECT count(*) FROM x") != 2 {
			t.Errorf("%d rows", n)
		}
		if n := count(t, base, "SELECT count(*) FROM cap_published"); n != 1 {
			t.Errorf("%d messages", n)
		}
	}
}

type otherTx struct{ storage.Tx }

func (otherTx) Value() any { return "other" }

func TestHandlersSayWhereTheyCannotWork(t *testing.T) {
	t.Parallel()
	elsewhere := storage.ContextWithTx(t.Context(), func() (storage.Tx, error) { return otherTx{}, nil })
	for name, h := range map[string]func(context.Context, int) error{
		"gorm": gormstore.Handle(func(context.Context, *gorm.DB, int) error { return nil }),
		"sql":  gormstore.SQLHandle(func(context.Context, *sql.Tx, int) error { return nil }),
	} {
		if err := h(t.Context(), 1); !errors.Is(err, storage.ErrNoTx) {
			t.Errorf("%s, outside: %v", name, err)
		}
		if err := h(elsewhere, 1); err == nil || errors.Is(err, storage.ErrNoTx) {
			t.Errorf("%s, elsewhere: %v", name, err)
		}
	}
}

// TestTheContextBoundsATransactionsLife.
func TestTheContextBoundsATransactionsLife(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	m := join(t, s, storage.Inbox)
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := s.Begin(ctx)
	must(t, err)
	w, err := s.Bind(tx.Value())
	must(t, err)
	cancel()
	eventually(t, "the transaction is rolled back", w.(storage.EndProber).Ended)
	if err := tx.Settle(t.Context(), m, storage.Outcome{Kind: storage.Succeed}); !errors.Is(err, storage.ErrTxDone) {
		t.Error(err)
	}
	if err := tx.Commit(); err == nil {
		t.Error("committed")
	}
	must(t, tx.Rollback())
	if _, err := s.Begin(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestHandleOfNothing gives nil, which a subscription refuses.
func TestHandleOfNothing(t *testing.T) {
	t.Parallel()
	if gormstore.Handle[string](nil) != nil || gormstore.SQLHandle[string](nil) != nil {
		t.Error("a handler of a nil function would panic with each message")
	}
}
