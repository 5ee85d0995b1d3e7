package processor

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

const (
	// Open transactions are probed so often at first, and less often with age.
	probeFirst, probeLast = 500 * time.Microsecond, 40 * time.Millisecond
	// After the end of a transaction its rows are looked for by id: at once,
	// then after waits that double, for a second. A commit may show late: the
	// end is told when it begins. A rollback never shows.
	lookFirst, lookLast, lookFor = 500 * time.Microsecond, 40 * time.Millisecond, time.Second
	// Where the end of a transaction does not show, for longer and less often.
	blindFirst, blindLast, blindFor = 5 * time.Millisecond, 50 * time.Millisecond, 10 * time.Second

	maxWatched = 10000 // transactions, and rows looked for
)

// Waker learns that a transaction with messages has ended, and gives their rows
// to the Dispatcher at once. It is a hint: what it misses, NeedRetry finds
// within a PollInterval.
type Waker struct {
	keeper *rows.Keeper
	d      *Dispatcher
	retry  *NeedRetry
	log    *quiet.Logger
	wake   chan struct{}

	mu     sync.Mutex
	open   openTxs
	ripe   []*lookup
	closed bool
}

// NewWaker returns a Waker; its Run does the work.
func NewWaker(keeper *rows.Keeper, d *Dispatcher, retry *NeedRetry, log *quiet.Logger) *Waker {
	return &Waker{
		keeper: keeper, d: d, retry: retry, log: log, wake: make(chan struct{}, 1),
		open: openTxs{byKey: map[txKey]*openTx{}},
	}
}

// Watch tells what was written by wr. It does not block.
func (w *Waker) Watch(wr storage.Writer, x Written) {
	switch wr := wr.(type) {
	case storage.EndNotifier:
		w.listen(wr, x)
	case storage.EndProber:
		w.watch(wr, x)
	default:
		w.ripen(x.lookup(), blindFirst, blindLast, blindFor)
	}
}

func (w *Waker) watch(p storage.EndProber, x Written) {
	key := txKey{p.TxKey(), x.Owner}
	w.mu.Lock()
	defer w.mu.Unlock()
	tx := w.open.byKey[key]
	if tx == nil {
		if w.closed || len(w.open.byKey) >= maxWatched {
			return
		}
		now := time.Now()
		tx = &openTx{prober: p, key: key, rows: lookup{owner: x.Owner}, since: now, next: now.Add(probeFirst)}
		w.open.add(tx)
		signal(w.wake)
	}
	tx.rows.add(x)
}

// Committed tells what is committed. It does not block.
func (w *Waker) Committed(x Written) {
	w.ripen(x.lookup(), lookFirst, lookLast, lookFor)
}

// ripen lets rows be looked for from now on. Of too many at once NeedRetry finds
// those that are committed.
func (w *Waker) ripen(l lookup, first, most, long time.Duration) {
	if len(l.keys) > 0 {
		w.d.order.expect(l.keys, first, most, long)
	}
	if len(l.ids) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if len(w.ripe) >= maxWatched {
		w.retry.Kick()
		return
	}
	now := time.Now()
	l.next, l.ends, l.wait, l.most = now, now.Add(long), first, most
	w.ripe = append(w.ripe, &l)
	signal(w.wake)
}

// Run works until ctx ends.
func (w *Waker) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		w.probe()
		w.look(ctx)
		if wait, some := w.next(); some {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-w.wake:
		case <-ctx.Done():
			w.mu.Lock()
			w.closed, w.open, w.ripe = true, openTxs{}, nil
			w.mu.Unlock()
			return
		}
	}
}

// probe finds the transactions that have ended. It asks them without the lock:
// the answer may have to wait for a transaction that is about to end, and those
// who publish must not.
func (w *Waker) probe() {
	now := time.Now()
	w.mu.Lock()
	txs := w.open.due(now)
	w.mu.Unlock()
	for _, tx := range txs {
		if !tx.prober.Ended() {
			w.mu.Lock()
			tx.next = now.Add(tx.wait(now))
			w.open.add(tx)
			w.mu.Unlock()
			continue
		}
		w.mu.Lock()
		delete(w.open.byKey, tx.key) // what is published in it from now on is another's business
		w.mu.Unlock()
		w.ripen(tx.rows, lookFirst, lookLast, lookFor)
	}
}

// next returns when to come again; false: not before something happens.
func (w *Waker) next() (wait time.Duration, some bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	wait = time.Hour
	if len(w.open.order) > 0 {
		wait = w.open.order[0].next.Sub(now)
	}
	for _, l := range w.ripe {
		wait = min(wait, l.next.Sub(now))
	}
	return max(0, wait), len(w.open.order)+len(w.ripe) > 0
}

// look reads the rows whose time has come.
func (w *Waker) look(ctx context.Context) {
	t := w.keeper.Current()
	if t == nil {
		batch, _ := w.due(maxWatched)
		w.again(batch, nil)
		return
	}
	limit := min(w.d.free(), w.d.cfg.BatchSize)
	batch, missed := w.due(limit)
	if missed {
		w.retry.Expect(0) // finds them, in their order, when there is room
	}
	if len(batch) == 0 {
		return
	}
	seen, err := w.admit(ctx, t, batch)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn(ctx, "committed rows not read", "", slog.Any("err", err))
		}
		return
	}
	w.again(batch, seen)
}

// due takes the lookups whose time has come off the list, up to a limit of
// rows. Without room they are dropped; it reports whether there were some.
func (w *Waker) due(limit int) (batch []*lookup, missed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, n := time.Now(), 0
	rest := w.ripe[:0:0]
	for _, l := range w.ripe {
		if l.next.After(now) {
			rest = append(rest, l)
			continue
		}
		if limit <= 0 {
			missed = true
			continue
		}
		if len(l.ids) > limit {
			l.sample(limit)
		}
		if n+len(l.ids) > limit {
			rest = append(rest, l)
			continue
		}
		batch = append(batch, l)
		n += len(l.ids)
	}
	w.ripe = rest
	return batch, missed
}

// admit gives the rows that are there to the Dispatcher. Rows written under a
// former number of this process are taken over. One that has failed meanwhile
// is not for us: it is tried again when it is due.
func (w *Waker) admit(ctx context.Context, t *rows.Tenure, batch []*lookup) (map[storage.ID]bool, error) {
	var own, former []storage.ID
	for _, l := range batch {
		if l.owner == t.Number() {
			own = append(own, l.ids...)
		} else {
			former = append(former, l.ids...)
		}
	}
	ctx, cancel := lookContext(ctx, t)
	defer cancel()
	look := w.d.desk.Hand.Begin()
	defer look.End()
	var recs []*storage.Record
	if len(own) > 0 {
		found, _, err := t.Due(ctx, storage.Query{IDs: own})
		if err != nil {
			return nil, err
		}
		recs = append(recs, found...)
	}
	if len(former) > 0 {
		found, err := t.TakeOver(ctx, storage.Query{IDs: former})
		if err != nil {
			return nil, err
		}
		recs = append(recs, found...)
	}
	seen := make(map[storage.ID]bool, len(recs))
	var admitted []*storage.Record
	for _, rec := range recs {
		seen[rec.ID] = true
		if rec.Status != storage.Failed && w.d.wants(rec) && look.Take(rec.ID) {
			admitted = append(admitted, rec)
		}
	}
	w.d.Admit(t, admitted)
	return seen, nil
}

// again puts back the lookups that have not seen all their rows. Where some of
// a sample are seen, all are committed.
func (w *Waker) again(batch []*lookup, seen map[storage.ID]bool) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range batch {
		left := slices.DeleteFunc(slices.Clone(l.ids), func(id storage.ID) bool { return seen[id] })
		if l.more && len(left) < len(l.ids) {
			w.retry.Kick()
			continue
		}
		l.ids = left
		if len(l.ids) == 0 || now.After(l.ends) || w.closed {
			continue
		}
		l.next, l.wait = now.Add(l.wait), min(2*l.wait, l.most)
		w.ripe = append(w.ripe, l)
	}
}
