package pgxtx_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/pgxtx"
)

// wrapper is a transaction of an application's own type.
type wrapper struct{ pgx.Tx }

// mock has no connection.
type mock struct{ pgx.Tx }

func (mock) Conn() *pgx.Conn                                        { return nil }
func (mock) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return nil }
func (mock) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.NewCommandTag("INSERT 0 7"), nil
}

// TestBindRunsInTheTransaction, whatever form it has.
func TestBindRunsInTheTransaction(t *testing.T) {
	t.Parallel()
	cfg := newDatabase(t)
	conn, pool := connect(t, cfg), newPool(t, cfg)
	nested := func(tx pgx.Tx) pgx.Tx {
		n, err := tx.Begin(t.Context())
		must(t, err)
		return n
	}
	forms := map[string]struct {
		db beginner
		of func(pgx.Tx) pgx.Tx
	}{
		"conn":              {conn, func(tx pgx.Tx) pgx.Tx { return tx }},
		"pool":              {pool, func(tx pgx.Tx) pgx.Tx { return tx }},
		"nested in conn":    {conn, nested},
		"nested in pool":    {pool, func(tx pgx.Tx) pgx.Tx { return nested(nested(tx)) }},
		"wrapper":           {pool, func(tx pgx.Tx) pgx.Tx { return wrapper{tx} }},
		"pointer to such":   {pool, func(tx pgx.Tx) pgx.Tx { return &wrapper{tx} }},
		"of somebody's own": {pool, func(tx pgx.Tx) pgx.Tx { return wrapper{nested(tx)} }},
	}
	for name, f := range forms {
		_, err := conn.Exec(t.Context(), "TRUNCATE t")
		must(t, err)
		tx, err := f.db.Begin(t.Context())
		must(t, err)
		e := bind(t, f.of(tx))
		if _, ok := e.(storage.EndNotifier); ok {
			t.Errorf("%s: it says that it can tell of the end, without a Tracer", name)
		}
		res, err := e.ExecContext(t.Context(), "INSERT INTO t (n) VALUES ($1), ($2)", int64(1), int64(2))
		must(t, err)
		if n, err := res.RowsAffected(); n != 2 || err != nil {
			t.Errorf("%s: %d rows, %v; want 2", name, n, err)
		}
		if _, err := res.LastInsertId(); err == nil {
			t.Errorf("%s: a last insert id", name)
		}
		must(t, tx.Rollback(t.Context()))
		if n := rows(t, f.db); n != 0 {
			t.Errorf("%s: %d rows after the rollback", name, n)
		}
		if _, err := e.ExecContext(t.Context(), "SELECT 1"); !isDone(err) || !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s: after the rollback: %v", name, err)
		}
	}
	e := bind(t, mock{})
	res, err := e.ExecContext(t.Context(), "INSERT")
	must(t, err)
	if n, _ := res.RowsAffected(); n != 7 {
		t.Errorf("%d rows of a mock, want 7", n)
	}
}

func isDone(err error) bool {
	return errors.Is(err, storage.ErrTxDone) && errors.Is(err, sql.ErrTxDone)
}

// TestValuesArriveInEveryQueryMode that a pool may be set to.
func TestValuesArriveInEveryQueryMode(t *testing.T) {
	t.Parallel()
	cfg := newDatabase(t)
	for mode := pgx.QueryExecModeCacheStatement; mode <= pgx.QueryExecModeSimpleProtocol; mode++ {
		cfg := cfg.Copy()
		cfg.DefaultQueryExecMode = mode
		conn := connect(t, cfg)
		tx, err := conn.Begin(t.Context())
		must(t, err)
		e := bind(t, tx)
		_, err = e.ExecContext(t.Context(), "INSERT INTO t (n, s, b, ok) VALUES ($1, $2, $3, $4), ($5, NULL, NULL, NULL)",
			int64(1)<<60, "a'\\ö", []byte{0, 1, 0xff}, true, nil)
		must(t, err)
		var same int
		must(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM t
			WHERE n = 1::bigint << 60 AND s = 'a''\ö' AND b = '\x0001ff' AND ok OR n IS NULL`).Scan(&same))
		if same != 2 {
			t.Errorf("%s: values have changed on their way", mode)
		}
		id := []byte{0x01, 0x9f, 2, 3, 4, 5, 0x76, 7, 0x88, 9, 10, 11, 12, 13, 14, 15}
		for text, v := range map[string]any{ // for a uuid
			"INSERT INTO t (id) VALUES ($1::uuid)":                       "019f0203-0405-7607-8809-0a0b0c0d0e0f",
			"INSERT INTO t (id) VALUES (encode($1::bytea, 'hex')::uuid)": id,
		} {
			if _, err := e.ExecContext(t.Context(), text, v); err != nil {
				t.Errorf("%s: %s: %v", mode, text, err)
			}
		}
		_, err = e.ExecContext(t.Context(), "INSERT INTO t (id) VALUES ($1)", id)
		binary := mode < pgx.QueryExecModeExec
		if binary != (err == nil) {
			t.Errorf("%s: 16 bytes as a uuid: %v", mode, err)
		}
		must(t, tx.Rollback(t.Context()))
	}
}

// TestErrorsOfTheServerStayVisible, and a failed transaction is refused.
func TestErrorsOfTheServerStayVisible(t *testing.T) {
	t.Parallel()
	conn := connect(t, newDatabase(t))
	tx, err := conn.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	e := bind(t, tx)
	_, err = e.ExecContext(t.Context(), "INSERT INTO nowhere VALUES ($1)", int64(1))
	var refused *pgconn.PgError
	var state interface{ SQLState() string }
	if !errors.As(err, &refused) || !errors.As(err, &state) || state.SQLState() != "42P01" {
		t.Errorf("no SQLSTATE in %v", err)
	}
	if errors.Is(err, storage.ErrTxDone) {
		t.Errorf("the first error says that the transaction was done before: %v", err)
	}
	if _, err = e.ExecContext(t.Context(), "SELECT 1"); !isDone(err) || !errors.As(err, &refused) {
		t.Errorf("a statement in an aborted transaction: %v", err)
	}
	_, ok, err := pgxtx.Bind(tx)
	if !ok || !isDone(err) || !strings.Contains(err.Error(), "aborted") {
		t.Errorf("Bind of an aborted transaction: %v", err)
	}
}

// TestASavepointMakesAnAbortedTransactionUsable: a storage works with them.
func TestASavepointMakesAnAbortedTransactionUsable(t *testing.T) {
	t.Parallel()
	conn := connect(t, newDatabase(t))
	tx, err := conn.Begin(t.Context())
	must(t, err)
	e := bind(t, tx)
	for _, text := range []string{"SAVEPOINT s", "INSERT INTO nowhere VALUES (1)", "ROLLBACK TO SAVEPOINT s", "RELEASE s"} {
		if _, err := e.ExecContext(t.Context(), text); (err != nil) != strings.Contains(text, "nowhere") {
			t.Fatalf("%s: %v", text, err)
		}
	}
	bind(t, tx)
	must(t, tx.Commit(t.Context()))
}

// TestWhatCannotBeUsedIsRefused, and the error says why.
func TestWhatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	cfg := newDatabase(t)
	conn, pool := connect(t, cfg), newPool(t, cfg)
	begin := func(db beginner) pgx.Tx {
		tx, err := db.Begin(t.Context())
		must(t, err)
		return tx
	}
	acquired, err := pool.Acquire(t.Context())
	must(t, err)
	defer acquired.Release()
	committed, rolledBack := begin(pool), begin(conn)
	must(t, committed.Commit(t.Context()))
	must(t, rolledBack.Rollback(t.Context()))

	outer := begin(conn)
	inner, err := outer.Begin(t.Context())
	must(t, err)
	innerDone, err := outer.Begin(t.Context())
	must(t, err)
	must(t, innerDone.Commit(t.Context()))
	if _, _, err := pgxtx.Bind(innerDone); !isDone(err) {
		t.Errorf("a nested one that was committed: %v", err)
	}
	must(t, outer.Commit(t.Context()))

	bySQL := begin(conn)
	e := bind(t, bySQL)
	_, err = bySQL.Exec(t.Context(), "COMMIT")
	must(t, err)
	if _, err := e.ExecContext(t.Context(), "INSERT INTO t (n) VALUES (1)"); !isDone(err) {
		t.Errorf("a statement outside any transaction: %v", err)
	}

	lost := connect(t, cfg)
	inLost := begin(lost)
	must(t, lost.Close(t.Context()))

	begun := begin(pool)
	defer func() { _ = begun.Rollback(t.Context()) }()
	var none *pgxpool.Tx
	for name, c := range map[string]struct {
		tx   any
		is   error // nil: a *storage.TxTypeError
		says string
	}{
		"nil":                 {nil, storage.ErrNoTx, "nil"},
		"typed nil":           {none, storage.ErrNoTx, "*pgxpool.Tx(nil)"},
		"nil in an interface": {pgx.Tx(none), storage.ErrNoTx, "nil"},
		"empty":               {&pgxpool.Tx{}, storage.ErrNoTx, "holds none"},
		"wrapper of nothing":  {wrapper{}, storage.ErrNoTx, "holds none"},
		"committed":           {committed, storage.ErrTxDone, "committed or rolled back"},
		"rolled back":         {rolledBack, storage.ErrTxDone, "committed or rolled back"},
		"nested in such":      {inner, storage.ErrTxDone, "committed or rolled back"},
		"committed by SQL":    {bySQL, storage.ErrTxDone, "by itself"},
		"lost":                {inLost, storage.ErrTxDone, "closed"},
		"pool":                {pool, nil, "begin a transaction"},
		"connection":          {conn, nil, "begin a transaction"},
		"pool's connection":   {acquired, nil, "begin a transaction"},
		"pointer":             {&begun, nil, "itself"},
	} {
		_, _, err := pgxtx.Bind(c.tx)
		var wrong *storage.TxTypeError
		if err == nil || c.is != nil && !errors.Is(err, c.is) || c.is == nil && !errors.As(err, &wrong) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, tx := range []any{1, (*sql.Tx)(nil), &sql.Tx{}, "tx"} {
		if e, ok, err := pgxtx.Bind(tx); e != nil || ok || err != nil {
			t.Errorf("%T is another's business, but Bind answers %v, %v, %v", tx, e, ok, err)
		}
	}
}
