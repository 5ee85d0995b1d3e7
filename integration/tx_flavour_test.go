package integration

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/plugin/dbresolver"
)

// flavour is a form in which an application may hold a transaction.
type flavour struct {
	name  string
	begin func(ctx context.Context) (held, error)
	// in is the library's own function that ends a transaction after another; nil:
	// it has none.
	in    func(ctx context.Context, f func(held) error) error
	nests bool          // the library has transactions in transactions
	flat  bool          // and these are not savepoints
	blind bool          // a server's session that has left the transaction does not show
	look  time.Duration // apart, where the end is not told
}

// held is a transaction in the hands of an application.
type held struct {
	tx                    any // what is given to Publish
	exec                  func(ctx context.Context, query string) error
	scan                  func(ctx context.Context, query string) (int64, error)
	commit, rollback      func(ctx context.Context) error
	nest                  func(ctx context.Context, f func(held) error) error
	savepoint, rollbackTo func(ctx context.Context, name string) error
}

// withTexts fills in what a library has no calls for.
func (h held) withTexts() held {
	h.savepoint = func(ctx context.Context, name string) error { return h.exec(ctx, "SAVEPOINT "+name) }
	h.rollbackTo = func(ctx context.Context, name string) error { return h.exec(ctx, "ROLLBACK TO SAVEPOINT "+name) }
	return h
}

// within is f.in, or what an application writes where there is none.
func (f *flavour) within(ctx context.Context, do func(held) error) error {
	if f.in != nil {
		return f.in(ctx, do)
	}
	h, err := f.begin(ctx)
	if err != nil {
		return err
	}
	defer h.rollback(ctx) //nolint:errcheck // after a commit it does nothing
	if err := do(h); err != nil {
		return err
	}
	return h.commit(ctx)
}

func (s *site) flavours(tb testing.TB) []*flavour {
	tb.Helper()
	list := []*flavour{
		gormFlavour("gorm", s.openGORM(tb, gorm.Config{})),
		gormFlavour("gorm PrepareStmt", s.openGORM(tb, gorm.Config{PrepareStmt: true})),
		gormFlavour("gorm SkipDefaultTransaction", s.openGORM(tb, gorm.Config{SkipDefaultTransaction: true})),
		gormFlavour("gorm DisableNestedTransaction", s.openGORM(tb, gorm.Config{DisableNestedTransaction: true})),
		s.resolverFlavour(tb),
		{name: "database sql", begin: func(ctx context.Context) (held, error) {
			tx, err := s.db.BeginTx(ctx, nil)
			return sqlHeld(tx), err
		}},
		{name: "embeds sql.Tx", begin: func(ctx context.Context) (held, error) {
			tx, err := s.db.BeginTx(ctx, nil)
			return sqlHeld(&ownTx{tx, "of the application"}), err
		}},
		{name: "sqlx", begin: func(ctx context.Context) (held, error) {
			tx, err := sqlx.NewDb(s.db, s.sqlx).BeginTxx(ctx, nil)
			return sqlHeld(tx), err
		}},
		s.bunFlavour(),
	}
	if s.pgx == nil {
		return list
	}
	for _, f := range list {
		f.blind = true
	}
	return append(list, s.pgxFlavours(tb)...)
}

// ownTx is a type of the application, as any may be.
type ownTx struct {
	*sql.Tx

	name string
}

type anySQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Commit() error
	Rollback() error
}

func sqlHeld(tx anySQLTx) held {
	return held{
		tx: tx,
		exec: func(ctx context.Context, q string) error {
			_, err := tx.ExecContext(ctx, q)
			return err
		},
		scan: func(ctx context.Context, q string) (n int64, err error) {
			err = tx.QueryRowContext(ctx, q).Scan(&n)
			return n, err
		},
		commit:   func(context.Context) error { return tx.Commit() },
		rollback: func(context.Context) error { return tx.Rollback() },
	}.withTexts()
}

func (s *site) bunFlavour() *flavour {
	db := bun.NewDB(s.db, s.bun())
	var bunHeld func(tx bun.Tx) held
	bunHeld = func(tx bun.Tx) held {
		h := sqlHeld(tx)
		h.nest = func(ctx context.Context, f func(held) error) error {
			return tx.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return f(bunHeld(tx)) })
		}
		return h
	}
	return &flavour{
		name: "bun", nests: true,
		begin: func(ctx context.Context) (held, error) {
			tx, err := db.BeginTx(ctx, nil)
			return bunHeld(tx), err
		},
		in: func(ctx context.Context, f func(held) error) error {
			return db.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return f(bunHeld(tx)) })
		},
	}
}

func (s *site) openGORM(tb testing.TB, cfg gorm.Config) *gorm.DB {
	tb.Helper()
	cfg.Logger = logger.Discard
	db, err := gorm.Open(s.gorm(s.db), &cfg)
	must(tb, err)
	return db
}

func gormFlavour(name string, db *gorm.DB) *flavour {
	return &flavour{
		name: name, nests: true, flat: db.DisableNestedTransaction,
		begin: func(ctx context.Context) (held, error) {
			tx := db.WithContext(ctx).Begin()
			return gormHeld(tx), tx.Error
		},
		in: func(ctx context.Context, f func(held) error) error {
			return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return f(gormHeld(tx)) })
		},
	}
}

func gormHeld(tx *gorm.DB) held {
	return held{
		tx:   tx,
		exec: func(ctx context.Context, q string) error { return tx.WithContext(ctx).Exec(q).Error },
		scan: func(ctx context.Context, q string) (n int64, err error) {
			err = tx.WithContext(ctx).Raw(q).Scan(&n).Error
			return n, err
		},
		commit:   func(context.Context) error { return tx.Commit().Error },
		rollback: func(context.Context) error { return tx.Rollback().Error },
		nest: func(ctx context.Context, f func(held) error) error {
			return tx.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return f(gormHeld(tx)) })
		},
		savepoint:  func(_ context.Context, name string) error { return tx.SavePoint(name).Error },
		rollbackTo: func(_ context.Context, name string) error { return tx.RollbackTo(name).Error },
	}
}

// replica is a pool that nothing of a transaction may use.
type replica struct {
	gorm.ConnPool

	used atomic.Int64
}

func (r *replica) PrepareContext(ctx context.Context, q string) (*sql.Stmt, error) {
	r.used.Add(1)
	return r.ConnPool.PrepareContext(ctx, q)
}

func (r *replica) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	r.used.Add(1)
	return nil, errors.New("a replica cannot be written")
}

func (r *replica) QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	r.used.Add(1)
	return r.ConnPool.QueryContext(ctx, q, args...)
}

func (r *replica) QueryRowContext(ctx context.Context, q string, args ...any) *sql.Row {
	r.used.Add(1)
	return r.ConnPool.QueryRowContext(ctx, q, args...)
}

// withReplica opens db's resolver; what uses the replica fails the test.
func (s *site) withReplica(tb testing.TB, db *gorm.DB) *gorm.DB {
	tb.Helper()
	r := &replica{ConnPool: s.db}
	must(tb, db.Use(dbresolver.Register(dbresolver.Config{Replicas: []gorm.Dialector{s.gorm(r)}})))
	r.used.Store(0)                     // gorm asks for the version
	_ = db.Exec("SELECT 1 FROM orders") // which fails, there
	if r.used.Load() == 0 {
		tb.Error("the resolver does not use its replica: the test shows nothing")
	}
	r.used.Store(0)
	tb.Cleanup(func() {
		if n := r.used.Load(); n > 0 {
			tb.Errorf("the replica was used %d times", n)
		}
	})
	return db
}

func (s *site) resolverFlavour(tb testing.TB) *flavour {
	tb.Helper()
	return gormFlavour("gorm dbresolver", s.withReplica(tb, s.openGORM(tb, gorm.Config{})))
}
