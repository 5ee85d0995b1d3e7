package pgxtx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	_ pgx.QueryTracer       = Tracer{}
	_ pgx.BatchTracer       = Tracer{}
	_ pgx.CopyFromTracer    = Tracer{}
	_ pgx.PrepareTracer     = Tracer{}
	_ pgx.ConnectTracer     = Tracer{}
	_ pgxpool.AcquireTracer = Tracer{}
	_ pgxpool.ReleaseTracer = Tracer{}
)

// Tracer sees when transactions end that Bind was given. It belongs into the
// config of the pool, or of the connection, before that is made:
//
//	cfg.ConnConfig.Tracer = pgxtx.Tracer{}
//
// It works as well as one of several tracers in pgx's multitracer. It keeps
// nothing itself: its copies are the same. It costs some 20 ns a query. What is
// sent beside pgx.Conn, through its PgConn, it sees later: at the next command,
// or when the pool gets the connection back.
type Tracer struct {
	// Next is a tracer that is told of everything too, as far as it implements
	// the interfaces of pgx and pgxpool. Its context is the one that goes on.
	// Defaults to none.
	Next pgx.QueryTracer
}

// TraceQueryStart implements pgx.QueryTracer.
func (t Tracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	before(conn, data.SQL)
	if t.Next != nil {
		ctx = t.Next.TraceQueryStart(ctx, conn, data)
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (t Tracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	if t.Next != nil {
		t.Next.TraceQueryEnd(ctx, conn, data)
	}
	after(conn, data.CommandTag, data.Err)
}

// TraceBatchStart implements pgx.BatchTracer.
func (t Tracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	beforeBatch(conn, data.Batch)
	if next, ok := t.Next.(pgx.BatchTracer); ok {
		ctx = next.TraceBatchStart(ctx, conn, data)
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (t Tracer) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchQueryData) {
	if next, ok := t.Next.(pgx.BatchTracer); ok {
		next.TraceBatchQuery(ctx, conn, data)
	}
	after(conn, data.CommandTag, data.Err)
}

// TraceBatchEnd implements pgx.BatchTracer.
func (t Tracer) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	if next, ok := t.Next.(pgx.BatchTracer); ok {
		next.TraceBatchEnd(ctx, conn, data)
	}
	afterBatch(conn, data.Err)
}

// TraceCopyFromStart implements pgx.CopyFromTracer.
func (t Tracer) TraceCopyFromStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceCopyFromStartData) context.Context {
	before(conn, "")
	if next, ok := t.Next.(pgx.CopyFromTracer); ok {
		ctx = next.TraceCopyFromStart(ctx, conn, data)
	}
	return ctx
}

// TraceCopyFromEnd implements pgx.CopyFromTracer.
func (t Tracer) TraceCopyFromEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceCopyFromEndData) {
	if next, ok := t.Next.(pgx.CopyFromTracer); ok {
		next.TraceCopyFromEnd(ctx, conn, data)
	}
	after(conn, data.CommandTag, data.Err)
}

// TracePrepareStart implements pgx.PrepareTracer.
func (t Tracer) TracePrepareStart(ctx context.Context, conn *pgx.Conn, data pgx.TracePrepareStartData) context.Context {
	if next, ok := t.Next.(pgx.PrepareTracer); ok {
		ctx = next.TracePrepareStart(ctx, conn, data)
	}
	return ctx
}

// TracePrepareEnd implements pgx.PrepareTracer.
func (t Tracer) TracePrepareEnd(ctx context.Context, conn *pgx.Conn, data pgx.TracePrepareEndData) {
	if next, ok := t.Next.(pgx.PrepareTracer); ok {
		next.TracePrepareEnd(ctx, conn, data)
	}
	after(conn, pgconn.CommandTag{}, data.Err)
}
