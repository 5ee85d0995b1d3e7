package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
)

// blocked is a transaction that has published a message, and a second one that
// is to publish the same.
func blocked(t *testing.T, s storage.Storage, pool *sql.DB, rec *storage.Record) (first, second *sql.Tx, w storage.Writer) {
	t.Helper()
	first, err := pool.BeginTx(t.Context(), nil)
	must(t, err)
	fw, err := s.Bind(first)
	must(t, err)
	must(t, fw.Append(t.Context(), rec))
	second, err = pool.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = second.ExecContext(t.Context(), "INSERT INTO business VALUES (1)")
	must(t, err)
	w, err = s.Bind(second)
	must(t, err)
	return first, second, w
}

// TestAppendThatIsCutShort costs the transaction: nothing of it is committed.
func TestAppendThatIsCutShort(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(t, s.DB().Exec("CREATE TABLE business (id INT PRIMARY KEY)").Error)
	pool, err := s.DB().DB()
	must(t, err)
	rec := outgoing(0)
	rec.GivenID = true
	first, second, w := blocked(t, s, pool, rec)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := w.Append(ctx, rec); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("append that is cut short: %v", err)
	}
	if err := second.Commit(); err == nil {
		t.Error("the transaction was committed")
	}
	must(t, first.Commit())
	if n := count(t, s, "SELECT count(*) FROM business"); n != 0 {
		t.Errorf("%d rows of it are there", n)
	}
}

// TestAppendThatWaitsTooLong for a lock fails alone; the transaction goes on.
func TestAppendThatWaitsTooLong(t *testing.T) {
	t.Parallel()
	s := open(t, dsn(t, newDatabase(t, ""), "innodb_lock_wait_timeout=1"))
	must(t, s.Migrate(t.Context()))
	must(t, s.DB().Exec("CREATE TABLE business (id INT PRIMARY KEY)").Error)
	pool, err := s.DB().DB()
	must(t, err)
	rec := outgoing(0)
	rec.GivenID = true
	first, second, w := blocked(t, s, pool, rec)
	if err := w.Append(t.Context(), rec); err == nil || errors.Is(err, storage.ErrTxDone) || errors.Is(err, storage.ErrDuplicate) {
		t.Errorf("append that waits too long: %v", err)
	}
	must(t, first.Commit())
	if err := w.Append(t.Context(), rec); !errors.Is(err, storage.ErrDuplicate) {
		t.Errorf("append after that: %v, want ErrDuplicate", err)
	}
	must(t, w.Append(t.Context(), outgoing(0)))
	must(t, second.Commit())
	if n := count(t, s, "SELECT count(*) FROM cap_published JOIN business"); n != 2 {
		t.Errorf("%d messages, want both", n)
	}
}

// TestPublishNeedsNoOtherConnection, on a pool of one, in a store that has done
// nothing yet.
func TestPublishNeedsNoOtherConnection(t *testing.T) {
	t.Parallel()
	database := newDatabase(t, "")
	must(t, open(t, dsn(t, database)).Migrate(t.Context()))
	s := open(t, dsn(t, database))
	pool, err := s.DB().DB()
	must(t, err)
	pool.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tx, err := pool.BeginTx(ctx, nil)
	must(t, err)
	w, err := s.Bind(tx)
	must(t, err)
	must(t, w.Append(ctx, outgoing(0), outgoing(0)))
	must(t, tx.Commit())
}

// onlyExec is a transaction that cannot be asked.
type onlyExec struct{ tx *sql.Tx }

func (e onlyExec) ExecContext(ctx context.Context, q string, args ...any) (sql.Result, error) {
	return e.tx.ExecContext(ctx, q, args...)
}
func (e onlyExec) Commit() error   { return e.tx.Commit() }
func (e onlyExec) Rollback() error { return e.tx.Rollback() }

// TestPublishInATransactionThatCannotBeAsked: what is known of the server then
// is what the store has asked before.
func TestPublishInATransactionThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	database := newDatabase(t, "")
	must(t, open(t, dsn(t, database)).Migrate(t.Context()))
	s := open(t, dsn(t, database))
	pool, err := s.DB().DB()
	must(t, err)
	large := outgoing(0)
	large.Body = make([]byte, 3<<20)
	for _, asked := range []bool{false, true} {
		if asked {
			must(t, s.Check(t.Context()))
		}
		tx, err := pool.BeginTx(t.Context(), nil)
		must(t, err)
		w, err := s.Bind(onlyExec{tx})
		must(t, err)
		must(t, w.Append(t.Context(), outgoing(0)))
		if err := w.Append(t.Context(), large); (err == nil) != asked {
			t.Errorf("append of 3 MiB, the server was asked %t: %v", asked, err)
		}
		must(t, tx.Commit())
	}
}
