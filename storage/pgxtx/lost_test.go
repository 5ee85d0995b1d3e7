package pgxtx_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capbus/gocap/storage"
)

func terminate(tb testing.TB, cfg *pgx.ConnConfig, pid uint32) {
	tb.Helper()
	var done bool
	must(tb, connect(tb, cfg).QueryRow(tb.Context(), "SELECT pg_terminate_backend($1, 10000)", int64(pid)).Scan(&done))
	if !done {
		tb.Fatal("the backend has not ended")
	}
}

// TestAKilledConnectionIsTold by the next call on the transaction.
func TestAKilledConnectionIsTold(t *testing.T) {
	t.Parallel()
	base := newDatabase(t)
	cfg := traced(base)
	for name, db := range map[string]beginner{"conn": connect(t, cfg), "pool": newPool(t, cfg)} {
		for _, f := range []func(context.Context, pgx.Tx) error{commit, rollback, exec("SELECT 1"), query("SELECT 1"), batch("SELECT 1"), copyRows} {
			if c, ok := db.(*pgx.Conn); ok && c.IsClosed() {
				db = connect(t, cfg)
			}
			tx, err := db.Begin(t.Context())
			must(t, err)
			o := watch(t, tx)
			pg := tx.Conn().PgConn()
			terminate(t, base, pg.PID())
			if err := f(t.Context(), tx); err == nil {
				t.Errorf("%s: no error on a killed connection", name)
			}
			o.want(t, name, true)
			_ = tx.Rollback(t.Context())
			o.want(t, name+" after the deferred Rollback", true)
			<-pg.CleanupDone()
		}
		if n := rows(t, connect(t, base)); n != 0 {
			t.Errorf("%s: %d rows", name, n)
		}
	}
}

func copyRows(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"n"}, pgx.CopyFromRows([][]any{{int64(1)}}))
	return err
}

// TestACancelledContextIsTold: pgx closes the connection, at once when the
// command was under way, else after it has told the tracer. Then the pool tells.
func TestACancelledContextIsTold(t *testing.T) {
	t.Parallel()
	cfg := traced(newDatabase(t))
	conn, pool := connect(t, cfg), newPool(t, cfg)
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	begin := func(db beginner) (pgx.Tx, *told) {
		tx, err := db.Begin(t.Context())
		must(t, err)
		return tx, watch(t, tx)
	}
	ended := func(err error) {
		t.Helper()
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	}
	for _, f := range []func(context.Context, pgx.Tx) error{commit, rollback} {
		tx, o := begin(pool)
		ended(f(dead, tx))
		o.want(t, "pool", true)
		<-tx.Conn().PgConn().CleanupDone()
	}
	for _, db := range []beginner{pool, conn} {
		tx, o := begin(db)
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		ended(exec("SELECT pg_sleep(60)")(short, tx))
		cancel()
		o.want(t, "during a statement", true)
		_ = tx.Rollback(t.Context())
		<-tx.Conn().PgConn().CleanupDone()
	}
	conn = connect(t, cfg)
	tx, o := begin(conn)
	ended(commit(dead, tx))
	if !conn.IsClosed() {
		t.Error("pgx has left the connection open")
	}
	o.want(t, "a COMMIT that was not sent, on a single connection")
	if n := rows(t, pool); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// TestWhatThePoolGetsBackHasEnded: it closes a connection in a transaction.
func TestWhatThePoolGetsBackHasEnded(t *testing.T) {
	t.Parallel()
	pool := newPool(t, traced(newDatabase(t)))
	for name, c := range map[string]struct {
		leave  func(*pgx.Conn)
		stored bool
	}{
		"open":        {func(*pgx.Conn) {}, false},
		"closed":      {func(conn *pgx.Conn) { _ = conn.Close(t.Context()) }, true}, // nobody knows
		"busy":        {func(conn *pgx.Conn) { conn.PgConn().Exec(t.Context(), "COMMIT") }, true},
		"ended by it": {func(conn *pgx.Conn) { must(t, conn.PgConn().Exec(t.Context(), "COMMIT").Close()) }, true},
	} {
		conn, err := pool.Acquire(t.Context())
		must(t, err)
		tx, err := conn.Begin(t.Context())
		must(t, err)
		o := watch(t, tx)
		c.leave(conn.Conn())
		conn.Release()
		o.want(t, name, c.stored)
	}
}

// TestAForgottenConnectionTakesItsWatchesAlong: nothing else holds them.
func TestAForgottenConnectionTakesItsWatchesAlong(t *testing.T) {
	t.Parallel()
	cfg := traced(newDatabase(t))
	const n = 3
	collected := make(chan struct{}, n)
	for range n {
		func() {
			conn, err := pgx.ConnectConfig(t.Context(), cfg)
			must(t, err)
			tx, err := conn.Begin(t.Context())
			must(t, err)
			held := new([1 << 20]byte)
			runtime.AddCleanup(held, func(struct{}) { collected <- struct{}{} }, struct{}{})
			bind(t, tx).(storage.EndNotifier).OnEnd(func(bool) { held[0]++ })
			must(t, conn.Close(t.Context()))
			<-conn.PgConn().CleanupDone()
		}()
	}
	for range n {
		for done := false; !done; {
			runtime.GC()
			select {
			case <-collected:
				done = true
			case <-time.After(time.Millisecond):
			case <-t.Context().Done():
				t.Fatal("what the watches hold is not collected")
			}
		}
	}
}
