package pgxtx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TraceConnectStart implements pgx.ConnectTracer.
func (t Tracer) TraceConnectStart(ctx context.Context, data pgx.TraceConnectStartData) context.Context {
	if next, ok := t.Next.(pgx.ConnectTracer); ok {
		ctx = next.TraceConnectStart(ctx, data)
	}
	return ctx
}

// TraceConnectEnd implements pgx.ConnectTracer.
func (t Tracer) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	if next, ok := t.Next.(pgx.ConnectTracer); ok {
		next.TraceConnectEnd(ctx, data)
	}
}

// TraceAcquireStart implements pgxpool.AcquireTracer.
func (t Tracer) TraceAcquireStart(
	ctx context.Context, pool *pgxpool.Pool, data pgxpool.TraceAcquireStartData,
) context.Context {
	if next, ok := t.Next.(pgxpool.AcquireTracer); ok {
		ctx = next.TraceAcquireStart(ctx, pool, data)
	}
	return ctx
}

// TraceAcquireEnd implements pgxpool.AcquireTracer.
func (t Tracer) TraceAcquireEnd(ctx context.Context, pool *pgxpool.Pool, data pgxpool.TraceAcquireEndData) {
	if next, ok := t.Next.(pgxpool.AcquireTracer); ok {
		next.TraceAcquireEnd(ctx, pool, data)
	}
}

// TraceRelease implements pgxpool.ReleaseTracer.
func (t Tracer) TraceRelease(pool *pgxpool.Pool, data pgxpool.TraceReleaseData) {
	if next, ok := t.Next.(pgxpool.ReleaseTracer); ok {
		next.TraceRelease(pool, data)
	}
	released(data.Conn)
}
