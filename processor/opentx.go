package processor

import (
	"container/heap"
	"time"

	"github.com/capbus/gocap/storage"
)

// openTx is a transaction that has not ended, as far as we know.
type openTx struct {
	prober storage.EndProber
	key    txKey
	rows   lookup
	since  time.Time
	next   time.Time // when to probe
}

// txKey is a transaction, and the number under which rows in it are written.
type txKey struct {
	tx    any
	owner int64
}

// wait is how long to leave it alone now: what has been open for long is asked
// less often, so that thousands of them stay cheap.
func (tx *openTx) wait(now time.Time) time.Duration {
	return min(max(now.Sub(tx.since)/50, probeFirst), probeLast)
}

// openTxs are the transactions to probe, the next one first. Those that are
// being probed are only in byKey.
type openTxs struct {
	byKey map[txKey]*openTx
	order txHeap
}

func (o *openTxs) add(tx *openTx) {
	o.byKey[tx.key] = tx
	heap.Push(&o.order, tx)
}

// due takes those off whose time has come.
func (o *openTxs) due(now time.Time) []*openTx {
	var txs []*openTx
	for len(o.order) > 0 && !o.order[0].next.After(now) {
		txs = append(txs, heap.Pop(&o.order).(*openTx)) //nolint:forcetypeassert // only these are put in
	}
	return txs
}

type txHeap []*openTx

func (h txHeap) Len() int           { return len(h) }
func (h txHeap) Less(i, j int) bool { return h[i].next.Before(h[j].next) }
func (h txHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *txHeap) Push(x any)        { *h = append(*h, x.(*openTx)) } //nolint:forcetypeassert // only these are put in

func (h *txHeap) Pop() any {
	old := *h
	n := len(old) - 1
	tx := old[n]
	old[n] = nil
	*h = old[:n]
	return tx
}
