package integration

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/capbus/gocap/storage/pgxtx"
)

func (s *site) pgxFlavours(tb testing.TB) []*flavour {
	tb.Helper()
	traced := s.pgx.Copy()
	traced.Tracer = pgxtx.Tracer{}
	over := stdlib.OpenDBFromPool(s.pgxPool(tb, s.pgx, 2))
	tb.Cleanup(func() { _ = over.Close() })
	nested := pgxFlavour("pgx nested", s.pgxPool(tb, traced, 2))
	nested.in = nil
	outer := nested.begin
	nested.begin = func(ctx context.Context) (held, error) {
		out, err := outer(ctx)
		if err != nil {
			return out, err
		}
		return nestedHeld(ctx, out)
	}
	return []*flavour{
		pgxFlavour("pgx pool", s.pgxPool(tb, s.pgx, 2)),
		pgxFlavour("pgx pool with Tracer", s.pgxPool(tb, traced, 2)),
		pgxFlavour("pgx connection", &redialled{tb: tb, cfg: s.pgx}),
		pgxFlavour("pgx connection with Tracer", &redialled{tb: tb, cfg: traced}),
		nested,
		{name: "database sql over pgxpool", blind: true, begin: func(ctx context.Context) (held, error) {
			tx, err := over.BeginTx(ctx, nil)
			return sqlHeld(tx), err
		}},
	}
}

func (s *site) pgxPool(tb testing.TB, cfg *pgx.ConnConfig, conns int32) *pgxpool.Pool {
	tb.Helper()
	pc, err := pgxpool.ParseConfig("")
	must(tb, err)
	pc.ConnConfig, pc.MaxConns = cfg.Copy(), conns
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(tb.Context()), pc)
	must(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

type pgxBeginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// redialled is a single connection, and another when that is closed.
type redialled struct {
	tb   testing.TB
	cfg  *pgx.ConnConfig
	conn *pgx.Conn
}

func (r *redialled) Begin(ctx context.Context) (pgx.Tx, error) {
	if r.conn == nil || r.conn.IsClosed() {
		conn, err := pgx.ConnectConfig(context.WithoutCancel(ctx), r.cfg)
		if err != nil {
			return nil, err
		}
		r.tb.Cleanup(func() {
			_ = conn.Close(context.WithoutCancel(ctx))
			<-conn.PgConn().CleanupDone()
		})
		r.conn = conn
	}
	return r.conn.Begin(ctx)
}

func pgxFlavour(name string, db pgxBeginner) *flavour {
	return &flavour{
		name: name, nests: true,
		begin: func(ctx context.Context) (held, error) {
			tx, err := db.Begin(ctx)
			return pgxHeld(tx), err
		},
		in: func(ctx context.Context, f func(held) error) error {
			return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return f(pgxHeld(tx)) })
		},
	}
}

func pgxHeld(tx pgx.Tx) held {
	return held{
		tx: tx,
		exec: func(ctx context.Context, q string) error {
			_, err := tx.Exec(ctx, q)
			return err
		},
		scan: func(ctx context.Context, q string) (n int64, err error) {
			err = tx.QueryRow(ctx, q).Scan(&n)
			return n, err
		},
		commit:   func(ctx context.Context) error { return tx.Commit(ctx) },
		rollback: func(ctx context.Context) error { return tx.Rollback(ctx) },
		nest: func(ctx context.Context, f func(held) error) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return f(pgxHeld(tx)) })
		},
	}.withTexts()
}

// nestedHeld is a transaction in out, which ends with it.
func nestedHeld(ctx context.Context, out held) (held, error) {
	tx, err := out.tx.(pgx.Tx).Begin(ctx)
	if err != nil {
		return held{}, errors.Join(err, out.rollback(ctx))
	}
	h := pgxHeld(tx)
	inner := h
	h.commit = func(ctx context.Context) error {
		if err := inner.commit(ctx); err != nil {
			return errors.Join(err, out.rollback(ctx))
		}
		return out.commit(ctx)
	}
	h.rollback = func(ctx context.Context) error { return errors.Join(inner.rollback(ctx), out.rollback(ctx)) }
	return h, nil
}
