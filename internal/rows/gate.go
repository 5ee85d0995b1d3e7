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

	mu      sync.Mutex
	delayed []*Row
	lanes   map[laneKey]*lane // those that have rows
	under   map[*Row]struct{} // let through, in hand
	trial   *Row              // of all lanes' loners the one that was let through last
	expiry  *time.Timer       // of the trial
	proven  bool              // this process has lived for a while
}

func (g *gate) add(r *Row) {
	g.mu.Lock()
	kept := g.queue(r)
	g.mu.Unlock()
	switch {
	case !kept:
		g.desk.leave(r)
	case g.desk.Draining():
		g.drop()
	default:
		signal(g.wake)
	}
}

// queue reports false when the row is to wait in the table.
func (g *gate) queue(r *Row) bool {
	if r.Takeovers == 0 {
		r.claim = planned
		g.delayed = append(g.delayed, r)
		return true
	}
	l := g.lane(r)
	switch {
	case r.Takeovers == 1:
		r.claim = suspect
		l.suspects = append(l.suspects, r)
	case len(l.loners) >= g.desk.cfg.Waiting:
		return false
	default:
		r.claim = alone
		l.loners = append(l.loners, r)
	}
	return true
}

// drop empties the queues: nothing was written for these rows.
func (g *gate) drop() {
	g.mu.Lock()
	waiting := g.delayed
	g.delayed = nil
	for _, l := range g.lanes {
		waiting = append(append(waiting, l.suspects...), l.loners...)
		l.suspects, l.loners = nil, nil
		g.tidy(l)
	}
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
			g.release()
			return
		}
	}
}

// next takes rows of one tenure that may start now. Those that are let through
// in small numbers go first: they cannot hold up the others.
func (g *gate) next() []*Row {
	g.mu.Lock()
	defer g.mu.Unlock()
	if batch := g.loner(); len(batch) > 0 {
		return batch
	}
	for _, l := range g.lanes {
		if batch := cut(&l.suspects, g.desk.cfg.Suspects-l.running); len(batch) > 0 {
			l.running += len(batch)
			return g.enter(l, batch)
		}
	}
	return cut(&g.delayed, g.desk.cfg.Batch)
}

// loner takes a row that is tried alone. There is one on trial in all lanes: two
// that start together would be charged with each other's deaths.
func (g *gate) loner() []*Row {
	if !g.proven || g.trial != nil {
		return nil
	}
	for _, l := range g.lanes { // in an order by chance: no lane is always the last
		if l.alone || len(l.loners) == 0 {
			continue
		}
		l.alone = true
		batch := g.enter(l, cut(&l.loners, 1))
		g.trial = batch[0]
		g.expiry = time.AfterFunc(g.desk.cfg.Probation, func() { g.expired(batch[0]) })
		return batch
	}
	return nil
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
