package pgxtx_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/capbus/gocap/storage"
)

// way is a way to end a transaction.
type way struct {
	name   string
	end    func(ctx context.Context, tx pgx.Tx) error
	fails  bool // end returns an error
	says   bool // what OnEnd must say
	stores bool // the row is there afterwards
}

func exec(texts ...string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		for _, text := range texts {
			if _, err := tx.Exec(ctx, text); err != nil {
				return err
			}
		}
		return nil
	}
}

func query(text string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, text)
		if err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	}
}

func batch(texts ...string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		b := &pgx.Batch{}
		for _, text := range texts {
			b.Queue(text)
		}
		return tx.SendBatch(ctx, b).Close()
	}
}

// nested ends the transaction after what was done in one nested in it.
func nested(in func(context.Context, pgx.Tx) error, end func(context.Context, pgx.Tx) error) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		n, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if err := in(ctx, n); err != nil {
			return err
		}
		return end(ctx, tx)
	}
}

func commit(ctx context.Context, tx pgx.Tx) error   { return tx.Commit(ctx) }
func rollback(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }

func abort(ctx context.Context, tx pgx.Tx) error {
	_, _ = tx.Exec(ctx, "SELECT 1/0")
	return nil
}

func inTurn(steps ...func(context.Context, pgx.Tx) error) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		for _, step := range steps {
			if err := step(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	}
}

// unread commits, and begins the next, behind the back of the tracer.
func unread(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	b.Queue("SELECT 1").Exec(func(pgconn.CommandTag) error { return errors.New("of the application") })
	b.Queue("COMMIT")
	b.Queue("BEGIN")
	_ = tx.SendBatch(ctx, b).Close()
	return nil
}

func panics(ctx context.Context, tx pgx.Tx) error {
	defer func() { _ = recover() }()
	defer func() { _ = tx.Rollback(ctx) }()
	panic("in the middle")
}

const stored, gone = true, false

func ways() []way {
	const fails = true
	return []way{
		{"Commit", commit, false, true, stored},
		{"Rollback", rollback, false, false, gone},
		{"Commit, then the deferred Rollback", inTurn(commit, func(ctx context.Context, tx pgx.Tx) error {
			_ = tx.Rollback(ctx)
			return nil
		}), false, true, stored},
		{"panic", panics, false, false, gone},
		{"Exec COMMIT", exec("COMMIT"), false, true, stored},
		{"Exec END", exec("end;"), false, true, stored},
		{"Exec ROLLBACK", exec("rollback"), false, false, gone},
		{"Exec ABORT", exec("ABORT"), false, false, gone},
		{"Query COMMIT", query("COMMIT"), false, true, stored},
		{"Query ROLLBACK", query("ROLLBACK"), false, false, gone},
		{"COMMIT AND CHAIN", inTurn(exec("COMMIT AND CHAIN"), rollback), false, true, stored},
		{"ROLLBACK AND CHAIN", inTurn(exec("ROLLBACK AND CHAIN"), rollback), false, false, gone},
		{"several statements", exec("INSERT INTO t (n) VALUES (1); COMMIT"), false, true, stored},
		{"several, the last of which rolls back nothing", exec("COMMIT; ROLLBACK"), false, true, stored},
		{"several, and another transaction", inTurn(exec("COMMIT; BEGIN"), rollback), false, true, stored},
		{"batch with COMMIT", batch("INSERT INTO t (n) VALUES (1)", "COMMIT"), false, true, stored},
		{"batch with COMMIT and more", batch("COMMIT", "BEGIN", "ROLLBACK"), false, true, stored},
		{"batch with ROLLBACK", batch("ROLLBACK"), false, true, gone},
		{"batch, then Commit", inTurn(batch("SELECT 1", "SELECT 2"), commit), false, true, stored},
		{"batch, then Rollback", inTurn(batch("SELECT 1", "SELECT 2"), rollback), false, false, gone},
		{"batch with what nobody reads, and another transaction", inTurn(unread, rollback), false, true, stored},
		{"commit of an aborted one", inTurn(abort, commit), fails, false, gone},
		{"rollback of an aborted one", inTurn(abort, rollback), false, false, gone},
		{"commit that a constraint refuses", inTurn(exec("INSERT INTO t (n) VALUES (3), (3)"), commit), fails, true, gone},
		{"PREPARE TRANSACTION with none to be prepared", exec("PREPARE TRANSACTION 'x'"), fails, true, gone},
		{"nested", nested(commit, commit), false, true, stored},
		{"nested rolled back", nested(rollback, commit), false, true, stored},
		{"nested, then rolled back", nested(commit, rollback), false, false, gone},
		{"nested aborted", nested(inTurn(abort, rollback), commit), false, true, stored},
		{"nested twice", nested(nested(commit, commit), commit), false, true, stored},
		{"rollback to a savepoint", inTurn(exec("SAVEPOINT a", "ROLLBACK TO a"), commit), false, true, stored},
		{"through PgConn", func(ctx context.Context, tx pgx.Tx) error {
			return tx.Conn().PgConn().Exec(ctx, "COMMIT").Close()
		}, false, true, stored},
	}
}

// TestTheEndIsTold once, before the call that ends the transaction has
// returned, on a connection and on a pool, in the protocols that pgx has.
func TestTheEndIsTold(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			cfg := traced(newDatabase(t))
			cfg.DefaultQueryExecMode = mode
			conn, pool := connect(t, cfg), newPool(t, cfg)
			for _, w := range ways() {
				for name, db := range map[string]beginner{"conn": conn, "pool": pool} {
					theEndIsTold(t, db, w, name)
				}
			}
		})
	}
}

func theEndIsTold(t *testing.T, db beginner, w way, on string) {
	t.Helper()
	what, ctx := w.name+" on a "+on, t.Context()
	tx, err := db.Begin(ctx)
	must(t, err)
	first := watch(t, tx)
	second := watch(t, tx)
	if err := w.end(ctx, tx); (err != nil) != w.fails {
		t.Errorf("%s: %v", what, err)
	}
	if w.name == "through PgConn" { // seen at the next call, or when the pool gets its connection back
		first.want(t, what)
		_ = tx.Rollback(ctx)
	}
	first.want(t, what, w.says)
	second.want(t, what, w.says)
	_ = tx.Rollback(ctx)
	n := rows(t, db)
	if (n > 0) != w.stores {
		t.Errorf("%s: %d rows", what, n)
	}
	_, err = db.Exec(ctx, "TRUNCATE t")
	must(t, err)
	first.want(t, what+", later", w.says)
}

// TestEachTransactionOfAConnectionIsToldOfAlone.
func TestEachTransactionOfAConnectionIsToldOfAlone(t *testing.T) {
	t.Parallel()
	conn := connect(t, traced(newDatabase(t)))
	var before *told
	for i := range 10 {
		tx, err := conn.Begin(t.Context())
		must(t, err)
		o := watch(t, tx)
		must(t, commit(t.Context(), tx))
		o.want(t, "committed", true)
		if i > 0 {
			before.want(t, "the one before", true)
		}
		before = o
	}
}

// TestWhoAsksAfterTheEndIsToldAtOnce.
func TestWhoAsksAfterTheEndIsToldAtOnce(t *testing.T) {
	t.Parallel()
	conn := connect(t, traced(newDatabase(t)))
	for _, committed := range []bool{true, false} {
		tx, err := conn.Begin(t.Context())
		must(t, err)
		e := bind(t, tx)
		if committed {
			must(t, tx.Commit(t.Context()))
		} else {
			must(t, tx.Rollback(t.Context()))
		}
		calls := 0
		e.(storage.EndNotifier).OnEnd(func(c bool) {
			calls++
			if c != committed {
				t.Errorf("it says %t", c)
			}
		})
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
	}
}

// TestABatchThatBegins its transaction: that can be published in when the batch
// is closed.
func TestABatchThatBegins(t *testing.T) {
	t.Parallel()
	conn := connect(t, traced(newDatabase(t)))
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	res := conn.SendBatch(t.Context(), b)
	must(t, res.Close())
	o := watch(t, res.Tx())
	must(t, res.Tx().Commit(t.Context()))
	o.want(t, "committed", true)
}
