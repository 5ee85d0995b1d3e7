package postgres_test

import (
	"context"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// statement is one that a pool has run.
type statement struct {
	text string
	args []any
}

// recorder is a tracer of pgx that notes statements.
type recorder struct {
	mu   sync.Mutex
	seen []statement
}

func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := statement{text: d.SQL}
	for _, a := range d.Args {
		switch a.(type) {
		case pgx.QueryExecMode, pgx.QueryRewriter:
		default:
			s.args = append(s.args, a)
		}
	}
	r.seen = append(r.seen, s)
	return ctx
}

func (r *recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *recorder) trace(c *pgx.ConnConfig) { c.Tracer = r }

// taken returns what was noted since the last call.
func (r *recorder) taken() []statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = nil
	return seen
}

// word is the first one of the text.
func (s statement) word() string {
	w, _, _ := strings.Cut(strings.TrimSpace(s.text), " ")
	return strings.ToUpper(w)
}
