package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
)

// TestStmtContextTellsTheEnd pins what the probe of transactions rests on: for
// a statement of another database database/sql answers, without I/O, one error
// while the transaction is open, and sql.ErrTxDone from its end on. A zero Stmt
// belongs to no database.
func TestStmtContextTellsTheEnd(t *testing.T) {
	t.Parallel()
	s, other := newStore(t), newStore(t)
	otherDB, err := other.DB().DB()
	must(t, err)
	prepared, err := otherDB.PrepareContext(t.Context(), "SELECT 1")
	must(t, err)
	t.Cleanup(func() { _ = prepared.Close() })
	for name, stmt := range map[string]*sql.Stmt{"zero": new(sql.Stmt), "prepared": prepared} {
		ask := func(tx *sql.Tx) error {
			return tx.StmtContext(t.Context(), stmt).Close() //nolint:sqlclosecheck // it is closed to be asked
		}
		for end, f := range map[string]func(tx *sql.Tx, cancel func()){
			"commit":   func(tx *sql.Tx, _ func()) { must(t, tx.Commit()) },
			"rollback": func(tx *sql.Tx, _ func()) { must(t, tx.Rollback()) },
			"cancel":   func(_ *sql.Tx, cancel func()) { cancel() },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			tx, err := s.DB().ConnPool.(gorm.TxBeginner).BeginTx(ctx, nil)
			must(t, err)
			if err := ask(tx); err == nil || errors.Is(err, sql.ErrTxDone) {
				t.Errorf("%s, open: %v", name, err)
			}
			f(tx, cancel)
			eventually(t, name+", "+end, func() bool { return errors.Is(ask(tx), sql.ErrTxDone) })
			cancel()
		}
	}
}

func eventually(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	deadline, tick := time.NewTimer(20*time.Second), time.NewTicker(time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-deadline.C:
			tb.Fatalf("not in time: %s", what)
		}
	}
}

// TestProbingBesideAWorkingTransaction is for the race detector.
func TestProbingBesideAWorkingTransaction(t *testing.T) {
	t.Parallel()
	s := newStore(t, normal)
	must(t, s.DB().Exec("CREATE TABLE x (a)").Error)
	for i := range 4 {
		tx := s.DB().Begin()
		must(t, tx.Error)
		w, err := s.Bind(tx)
		must(t, err)
		seen := make(chan struct{})
		go func() {
			for !w.(storage.EndProber).Ended() {
				runtime.Gosched()
			}
			close(seen)
		}()
		for range 20 {
			must(t, tx.Exec("INSERT INTO x VALUES (1)").Error)
			must(t, w.Append(t.Context(), outgoing(0)))
		}
		select {
		case <-seen:
			t.Fatal("ended before its end")
		default:
		}
		if i%2 == 0 {
			must(t, tx.Commit().Error)
		} else {
			must(t, tx.Rollback().Error)
		}
		<-seen
	}
}

// odd answers the probe as nobody does.
type odd struct {
	*sql.Tx

	answer func() *sql.Stmt
}

func (o *odd) StmtContext(context.Context, *sql.Stmt) *sql.Stmt { return o.answer() }

// TestAnOddAnswerCountsAsOpen: the engine then looks into the table.
func TestAnOddAnswerCountsAsOpen(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	join(t, s, storage.Outbox)
	db, err := s.DB().DB()
	must(t, err)
	tx, err := s.DB().ConnPool.(gorm.TxBeginner).BeginTx(t.Context(), nil)
	must(t, err)
	prepared := func() *sql.Stmt {
		stmt, err := tx.PrepareContext(t.Context(), "SELECT 1")
		must(t, err)
		return stmt
	}
	w, err := s.Bind(&odd{tx, prepared})
	must(t, err)
	must(t, w.Append(t.Context(), outgoing(0)))
	if w.(storage.EndProber).Ended() {
		t.Error("ended")
	}
	must(t, tx.Commit())
	if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 1 {
		t.Errorf("%d rows", n)
	}
	if db.Stats().OpenConnections != 1 {
		t.Error("a connection is missing")
	}
}
