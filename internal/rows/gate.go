package rows

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/backoff"
	"github.com/capbus/gocap/storage"
)

// gate starts the rows that need a write before their first try: delayed ones,
// a batch at once, and those whose process died, a few or one at a time, so
// that a row which kills its process is told from its neighbours. A row that saw
// two deaths waits until this process has lived for Probation: a process that
// dies soon after its start, for whatever reason, again and again, must not
// bring innocent rows to their end.
type gate struct {
	desk *Desk
	wake chan struct{}

	mu       sync.Mutex
	delayed  []*Row
	suspects []*Row // taken over once
	loners   []*Row // more often
	running  int    // suspects under way
	alone    bool   // a loner is under way
	proven   bool   // this process has lived for a while
}

func (g *gate) add(r *Row) {
	g.mu.Lock()
	switch {
	case r.Takeovers > 1 && len(g.loners) >= g.desk.cfg.Waiting:
		g.mu.Unlock()
		g.desk.leave(r)
		return
	case r.Takeovers > 1:
		r.claim = alone
		g.loners = append(g.loners, r)
	case r.Takeovers == 1:
		r.claim = suspect
		g.suspects = append(g.suspects, r)
	default:
		r.claim = planned
		g.delayed = append(g.delayed, r)
	}
	g.mu.Unlock()
	if g.desk.Draining() {
		g.drop()
		return
	}
	signal(g.wake)
}

// ended tells that a row is no longer under way; it may be called for any row,
// and again.
func (g *gate) ended(r *Row) {
	if r.claim < suspect {
		return
	}
	g.mu.Lock()
	under := r.under
	switch {
	case !under: // it waited, or has ended before
	case r.claim == alone:
		g.alone = false
	default:
		g.running--
	}
	r.under = false
	g.mu.Unlock()
	if under {
		signal(g.wake)
	}
}

// claimed reports whether the start of the row may have been written down.
func (g *gate) claimed(r *Row) bool {
	if r.claim < suspect {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return r.under
}

// drop empties the queues: nothing was written for these rows.
func (g *gate) drop() {
	g.mu.Lock()
	waiting := append(append(g.delayed, g.suspects...), g.loners...)
	g.delayed, g.suspects, g.loners = nil, nil, nil
	g.mu.Unlock()
	g.desk.leave(waiting...)
}

func (g *gate) run(ctx context.Context) {
	probation := time.NewTimer(g.desk.cfg.Probation)
	defer probation.Stop()
	for {
		if batch := g.next(); len(batch) > 0 {
			g.claim(ctx, batch)
			continue
		}
		select {
		case <-g.wake:
		case <-probation.C:
			g.mu.Lock()
			g.proven = true
			g.mu.Unlock()
		case <-g.desk.closing:
			g.drop()
			return
		case <-ctx.Done():
			g.drop()
			return
		}
	}
}

// next takes rows of one tenure that may start now. Those that are let through
// in small numbers go first: they cannot hold up the others.
func (g *gate) next() []*Row {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.proven && !g.alone && len(g.loners) > 0 {
		g.alone = true
		return begin(cut(&g.loners, 1))
	}
	if batch := cut(&g.suspects, g.desk.cfg.Suspects-g.running); len(batch) > 0 {
		g.running += len(batch)
		return begin(batch)
	}
	return cut(&g.delayed, g.desk.cfg.Batch)
}

func begin(batch []*Row) []*Row {
	for _, r := range batch {
		r.under = true
	}
	return batch
}

// cut takes up to n rows of the first row's tenure off the queue.
func cut(queue *[]*Row, n int) []*Row {
	q, k := *queue, 0
	for k < len(q) && k < n && q[k].Tenure == q[0].Tenure {
		k++
	}
	*queue = q[k:]
	return q[:k:k]
}

// claim writes the start of the rows and starts those that are still ours. An
// error leaves it unknown whether it was written: the rows go back to the
// table, what may have been added to takeovers is taken off (else errors of the
// database would count as deaths), and a later look finds them.
func (g *gate) claim(ctx context.Context, batch []*Row) {
	recs := make([]*storage.Record, len(batch))
	for i, r := range batch {
		recs[i] = r.Record
	}
	wctx, cancel := context.WithTimeout(ctx, settleTimeout)
	claimed, err := batch[0].Tenure.Claim(wctx, recs...)
	cancel()
	if err != nil && ctx.Err() == nil {
		g.desk.cfg.Log.Warn(ctx, "rows not claimed, trying again", "", slog.Int("rows", len(batch)), slog.Any("err", err))
		backoff.Sleep(ctx, 100*time.Millisecond)
	}
	now := make(map[storage.ID]*storage.Record, len(claimed))
	for _, rec := range claimed {
		now[rec.ID] = rec
	}
	for _, r := range batch {
		rec := now[r.ID]
		switch {
		case err != nil:
			g.desk.GiveBack(r)
		case rec == nil: // cancelled, or another has it
			g.desk.Done(r)
		default:
			r.Record = rec
			g.desk.start(r)
		}
	}
}
