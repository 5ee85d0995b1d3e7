package pgxtx_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/pgxtx"
)

type key struct{}

// recorder is a tracer of the application, with every interface there is. It
// notes its calls, and whether its own context came back.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (r *recorder) note(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.calls, call) {
		r.calls = append(r.calls, call)
	}
}

func (r *recorder) start(ctx context.Context, call string) context.Context {
	r.note(call)
	return context.WithValue(ctx, key{}, call)
}

func (r *recorder) end(ctx context.Context, call string) {
	if from, _ := ctx.Value(key{}).(string); from != "" {
		call += " of " + from
	}
	r.note(call)
}

func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return r.start(ctx, "query")
}

func (r *recorder) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	r.end(ctx, "end")
}

func (r *recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return r.start(ctx, "batch")
}

func (r *recorder) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchQueryData) {
	r.end(ctx, "part")
}

func (r *recorder) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	r.end(ctx, "end")
}

func (r *recorder) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return r.start(ctx, "copy")
}

func (r *recorder) TraceCopyFromEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromEndData) {
	r.end(ctx, "end")
}

func (r *recorder) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	return r.start(ctx, "prepare")
}

func (r *recorder) TracePrepareEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareEndData) {
	r.end(ctx, "end")
}

func (r *recorder) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return r.start(ctx, "connect")
}

func (r *recorder) TraceConnectEnd(ctx context.Context, _ pgx.TraceConnectEndData) { r.end(ctx, "end") }

func (r *recorder) TraceAcquireStart(
	ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData,
) context.Context {
	return r.start(ctx, "acquire")
}

func (r *recorder) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	r.end(ctx, "end")
}

func (r *recorder) TraceRelease(*pgxpool.Pool, pgxpool.TraceReleaseData) { r.note("release") }

// queryOnly is a tracer of queries alone.
type queryOnly struct{ pgx.QueryTracer }

// TestAnotherTracerIsToldEverything, however the two are combined, and ours
// does its work.
func TestAnotherTracerIsToldEverything(t *testing.T) {
	t.Parallel()
	all := []string{
		"acquire", "batch", "connect", "copy", "end of acquire", "end of batch", "end of connect", "end of copy",
		"end of prepare", "end of query", "part of batch", "prepare", "query", "release",
	}
	queries := []string{"end of query", "query"}
	base := newDatabase(t)
	for name, c := range map[string]struct {
		of   func(*recorder) pgx.QueryTracer
		want []string
	}{
		"Next":        {func(r *recorder) pgx.QueryTracer { return pgxtx.Tracer{Next: r} }, all},
		"queries":     {func(r *recorder) pgx.QueryTracer { return pgxtx.Tracer{Next: queryOnly{r}} }, queries},
		"none":        {func(*recorder) pgx.QueryTracer { return pgxtx.Tracer{} }, nil},
		"pointer":     {func(*recorder) pgx.QueryTracer { return &pgxtx.Tracer{} }, nil},
		"multitracer": {func(r *recorder) pgx.QueryTracer { return multitracer.New(r, pgxtx.Tracer{}) }, all},
		"twice":       {func(r *recorder) pgx.QueryTracer { return pgxtx.Tracer{Next: pgxtx.Tracer{Next: r}} }, all},
		"wrapped":     {func(*recorder) pgx.QueryTracer { return queryOnly{pgxtx.Tracer{}} }, nil},
	} {
		r := &recorder{}
		cfg := base.Copy()
		cfg.Tracer = c.of(r)
		pool := newPool(t, cfg)
		for _, end := range []struct {
			with func(context.Context, pgx.Tx) error
			says bool
		}{{commit, true}, {rollback, false}} {
			tx, err := pool.Begin(t.Context())
			must(t, err)
			o := watch(t, tx)
			_, err = tx.Prepare(t.Context(), "p", "SELECT 1")
			must(t, err)
			must(t, batch("SELECT 1", "SELECT 2")(t.Context(), tx))
			must(t, copyRows(t.Context(), tx))
			_, err = tx.Exec(t.Context(), "DELETE FROM t")
			must(t, err)
			must(t, end.with(t.Context(), tx))
			o.want(t, name, end.says)
		}
		slices.Sort(r.calls)
		if !slices.Equal(r.calls, c.want) {
			t.Errorf("%s: the other one was told %q, want %q", name, r.calls, c.want)
		}
	}
}

// TestAnotherTracerAloneTellsNothing, so the engine must look by itself.
func TestAnotherTracerAloneTellsNothing(t *testing.T) {
	t.Parallel()
	cfg := newDatabase(t)
	cfg.Tracer = &recorder{}
	tx, err := newPool(t, cfg).Begin(t.Context())
	must(t, err)
	if _, ok := bind(t, tx).(storage.EndNotifier); ok {
		t.Error("it says that it can tell of the end")
	}
	must(t, tx.Rollback(t.Context()))
}
