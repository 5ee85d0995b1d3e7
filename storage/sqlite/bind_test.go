package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
)

// wrapped is a transaction as sqlx has it.
type wrapped struct {
	*sql.Tx

	name string
}

// execOnly cannot be probed.
type execOnly struct{ tx *sql.Tx }

func (e execOnly) ExecContext(ctx context.Context, q string, args ...any) (sql.Result, error) {
	return e.tx.ExecContext(ctx, q, args...)
}
func (e execOnly) Commit() error   { return e.tx.Commit() }
func (e execOnly) Rollback() error { return e.tx.Rollback() }

// foreign is a transaction for which there is a binder.
type foreign struct{ tx *sql.Tx }

func bindForeign(tx any) (storage.Execer, bool, error) {
	f, ok := tx.(foreign)
	if !ok {
		return nil, false, nil
	}
	if f.tx == nil {
		return nil, true, errors.New("it is empty")
	}
	return f.tx, true, nil
}

// flavour is a way to hold a transaction.
type flavour struct {
	name  string
	begin func(db *gorm.DB) (tx any, end func(commit bool) error)
}

func ofGorm(change func(db *gorm.DB) *gorm.DB, inside func(tx *gorm.DB) *gorm.DB) func(*gorm.DB) (any, func(bool) error) {
	return func(db *gorm.DB) (any, func(bool) error) {
		tx := change(db).Begin()
		return inside(tx), func(commit bool) error {
			if commit {
				return tx.Commit().Error
			}
			return tx.Rollback().Error
		}
	}
}

func ofSQL(wrap func(tx *sql.Tx) any) func(*gorm.DB) (any, func(bool) error) {
	return func(db *gorm.DB) (any, func(bool) error) {
		tx, err := db.ConnPool.(gorm.TxBeginner).BeginTx(context.Background(), nil)
		if err != nil {
			return nil, func(bool) error { return err }
		}
		return wrap(tx), func(commit bool) error {
			if commit {
				return tx.Commit()
			}
			return tx.Rollback()
		}
	}
}

func flavours() []flavour {
	same := func(db *gorm.DB) *gorm.DB { return db }
	prepared := func(db *gorm.DB) *gorm.DB { return db.Session(&gorm.Session{PrepareStmt: true}) }
	return []flavour{
		{"gorm", ofGorm(same, same)},
		{"gorm new session", ofGorm(same, func(tx *gorm.DB) *gorm.DB { return tx.Session(&gorm.Session{NewDB: true}) })},
		{"gorm with context", ofGorm(same, func(tx *gorm.DB) *gorm.DB { return tx.WithContext(context.Background()) })},
		{"gorm chained", ofGorm(same, func(tx *gorm.DB) *gorm.DB { return tx.Table("cap_published").Where("id = ?", 1) })},
		{"gorm savepoint", ofGorm(same, func(tx *gorm.DB) *gorm.DB { return tx.SavePoint("a") })},
		{"gorm prepared", ofGorm(prepared, same)},
		{"gorm prepared inside", ofGorm(same, prepared)},
		{"gorm without default transaction", ofGorm(func(db *gorm.DB) *gorm.DB {
			return db.Session(&gorm.Session{SkipDefaultTransaction: true})
		}, same)},
		{"sql.Tx", ofSQL(func(tx *sql.Tx) any { return tx })},
		{"wrapper", ofSQL(func(tx *sql.Tx) any { return &wrapped{tx, "w"} })},
		{"wrapper by value", ofSQL(func(tx *sql.Tx) any { return wrapped{tx, "w"} })},
		{"cannot be probed", ofSQL(func(tx *sql.Tx) any { return execOnly{tx} })},
		{"binder", ofSQL(func(tx *sql.Tx) any { return foreign{tx} })},
	}
}

// TestARowSharesTheFateOfItsTransaction: it is not there before the commit, nor
// after a rollback, and the writer knows when the transaction has ended.
func TestARowSharesTheFateOfItsTransaction(t *testing.T) {
	t.Parallel()
	for _, f := range flavours() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, func(c *sqlite.Config) { c.Binders = []storage.TxBinder{bindForeign} })
			join(t, s, storage.Outbox)
			for _, commit := range []bool{false, true} {
				tx, end := f.begin(s.DB())
				w, err := s.Bind(tx)
				must(t, err)
				must(t, w.Append(t.Context(), outgoing(0)))
				again, err := s.Bind(tx)
				must(t, err)
				must(t, again.Append(t.Context(), outgoing(0), outgoing(0)))
				if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 0 {
					t.Fatalf("%d rows are seen before the commit", n)
				}
				p, probed := w.(storage.EndProber)
				if probed == (f.name == "cannot be probed") {
					t.Fatalf("probed: %v", probed)
				}
				if probed && (p.Ended() || p.TxKey() == nil) {
					t.Fatal("has ended before its end")
				}
				if probed && f.name != "wrapper by value" && p.TxKey() != again.(storage.EndProber).TxKey() {
					t.Error("two keys of one transaction")
				}
				must(t, end(commit))
				if probed && !p.Ended() {
					t.Fatal("has not ended after its end")
				}
				if err := w.Append(t.Context(), outgoing(0)); !errors.Is(err, storage.ErrTxDone) || !errors.Is(err, sql.ErrTxDone) {
					t.Errorf("append after the end: %v", err)
				}
				_, err = s.Bind(tx)
				if probed && (!errors.Is(err, storage.ErrTxDone) || !errors.Is(err, sql.ErrTxDone)) {
					t.Errorf("bind after the end: %v", err)
				}
			}
			if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 3 {
				t.Errorf("%d rows", n)
			}
		})
	}
}

// TestANestedTransactionThatFailsTakesItsRowsAlong.
func TestANestedTransactionThatFailsTakesItsRowsAlong(t *testing.T) {
	t.Parallel()
	for _, prepare := range []bool{false, true} {
		s := newStore(t)
		add := func(tx *gorm.DB) error {
			w, err := s.Bind(tx)
			if err != nil {
				return err
			}
			return w.Append(t.Context(), outgoing(0))
		}
		undo := errors.New("undo")
		must(t, s.DB().Session(&gorm.Session{PrepareStmt: prepare}).Transaction(func(tx *gorm.DB) error {
			must(t, add(tx))
			if err := tx.Transaction(func(tx *gorm.DB) error { return errors.Join(add(tx), undo) }); !errors.Is(err, undo) {
				return err
			}
			return tx.Transaction(add)
		}))
		if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 2 {
			t.Errorf("prepared %v: %d rows", prepare, n)
		}
	}
}

func TestBindRefuses(t *testing.T) {
	t.Parallel()
	s := newStore(t, func(c *sqlite.Config) { c.Binders = []storage.TxBinder{bindForeign} })
	db := s.DB()
	pool, err := db.DB()
	must(t, err)
	tx := db.Begin()
	must(t, tx.Error)
	failed := tx.Session(&gorm.Session{NewDB: true}).Exec("no SQL")
	dry := tx.Session(&gorm.Session{DryRun: true})
	var typeErr *storage.TxTypeError
	for _, c := range []struct {
		name string
		tx   any
		is   error
		as   any
		text string
	}{
		{"nil", nil, storage.ErrNoTx, nil, "nil"},
		{"nil gorm", (*gorm.DB)(nil), storage.ErrNoTx, nil, "*gorm.DB"},
		{"nil sql", (*sql.Tx)(nil), storage.ErrNoTx, nil, "*sql.Tx"},
		{"nil wrapper", (*wrapped)(nil), storage.ErrNoTx, nil, "wrapped"},
		{"empty wrapper", &wrapped{}, storage.ErrNoTx, nil, "wrapped"},
		{"empty gorm", &gorm.DB{}, storage.ErrNoTx, nil, "not initialised"},
		{"gorm outside", db, storage.ErrNoTx, nil, "not in a transaction"},
		{"prepared outside", db.Session(&gorm.Session{PrepareStmt: true}), storage.ErrNoTx, nil, "not in a transaction"},
		{"with an error", failed, storage.ErrTxDone, nil, "syntax error"},
		{"dry run", dry, storage.ErrNoTx, nil, "DryRun"},
		{"pool", pool, nil, &typeErr, "BeginTx"},
		{"conn", new(sql.Conn), nil, &typeErr, "BeginTx"},
		{"string", "tx", nil, &typeErr, "string"},
		{"gorm by value", *tx, nil, &typeErr, "pointer"},
		{"binder", foreign{}, nil, nil, "it is empty"},
	} {
		w, err := s.Bind(c.tx)
		switch {
		case err == nil || w != nil:
			t.Errorf("%s: bound", c.name)
		case c.is != nil && !errors.Is(err, c.is):
			t.Errorf("%s: %v is not %v", c.name, err, c.is)
		case c.as != nil && !errors.As(err, c.as):
			t.Errorf("%s: %v is no %T", c.name, err, c.as)
		case !strings.Contains(err.Error(), c.text):
			t.Errorf("%s: %v does not say %q", c.name, err, c.text)
		}
	}
	must(t, tx.Rollback().Error)
}

// TestAStoreThatCannotBeUsedSaysSo in every method.
func TestAStoreThatCannotBeUsedSaysSo(t *testing.T) {
	t.Parallel()
	good := newStore(t)
	tx := good.DB().Begin()
	must(t, tx.Error)
	for name, s := range map[string]*gormstore.Store{
		"nil":            gormstore.New(nil, gormstore.Config{}),
		"empty":          gormstore.New(&gorm.DB{}, gormstore.Config{}),
		"in transaction": gormstore.New(tx, gormstore.Config{}),
		"prefix":         gormstore.New(good.DB(), gormstore.Config{TablePrefix: "1"}),
		"dry run":        gormstore.New(good.DB().Session(&gorm.Session{DryRun: true}), gormstore.Config{}),
	} {
		_, bind := s.Bind(tx)
		_, begin := s.Begin(t.Context())
		_, join := s.Join(t.Context(), storage.Instance{Box: storage.Inbox})
		_, purge := s.Purge(t.Context(), storage.Purge{Box: storage.Inbox, Limit: 1})
		_, list := s.Migrations()
		for i, err := range []error{
			s.Validate(), s.Check(t.Context()), s.Migrate(t.Context()), bind, begin, join, purge, list,
		} {
			if err == nil {
				t.Errorf("%s: method %d returns no error", name, i)
			}
		}
		must(t, s.Close())
	}
	must(t, tx.Rollback().Error)
}
