package processor

import (
	"slices"
	"sync"
	"time"

	"github.com/capbus/gocap/storage"
)

const (
	maxTxIDs = 1000 // that are remembered of one transaction
	sampled  = 16   // of more
)

// Written is what one Publish wrote into a transaction.
type Written struct {
	Owner int64        // the number under which it was written
	IDs   []storage.ID // of rows without a key
	Keys  []string     // of the others
}

func (x Written) lookup() lookup { return lookup{owner: x.Owner, ids: x.IDs, keys: x.Keys} }

// lookup is rows, written under one number, that are committed or may be.
type lookup struct {
	owner      int64
	ids        []storage.ID
	keys       []string
	more       bool // ids are a sample: when one shows, the table is scanned
	next, ends time.Time
	wait, most time.Duration
}

// add remembers what else was written; of too many ids, a sample with the latest
// in it: what was published first may have been rolled back to a savepoint. Keys
// beyond the first ones are found by the scan of all keys.
func (l *lookup) add(x Written) {
	if room := maxTxIDs - len(l.keys); room > 0 {
		l.keys = append(l.keys, x.Keys[:min(room, len(x.Keys))]...)
	}
	ids := x.IDs
	switch {
	case len(ids) == 0:
	case l.more:
		l.ids[len(l.ids)-1] = ids[len(ids)-1]
	case len(l.ids)+len(ids) <= maxTxIDs:
		l.ids = append(l.ids, ids...)
	default:
		l.ids = slices.Concat(l.ids, ids)
		l.sample(sampled)
	}
}

// sample keeps at most that many of the ids, from the first to the last. A scan
// at the end of the transaction would not do: its end may show before its rows.
func (l *lookup) sample(most int) {
	n := min(most, sampled)
	if n >= len(l.ids) {
		return
	}
	ids := make([]storage.ID, n)
	for i := range ids {
		ids[n-1-i] = l.ids[len(l.ids)-1-i*(len(l.ids)-1)/max(1, n-1)]
	}
	l.ids, l.more = ids, true
}

// heard is a transaction that tells of its end.
type heard struct {
	mu   sync.Mutex
	rows lookup
	over bool
}

// heardKey is where it stands in the values of the transaction.
type heardKey struct {
	w     *Waker
	owner int64
}

// listen waits for the end of a transaction with one callback. What it waits
// for is kept with the transaction: one whose connection is lost may never tell.
func (w *Waker) listen(n storage.EndNotifier, x Written) {
	v, known := n.TxValues().LoadOrStore(heardKey{w, x.Owner}, &heard{rows: lookup{owner: x.Owner}})
	h, _ := v.(*heard)
	h.mu.Lock()
	over := h.over
	if !over {
		h.rows.add(x)
	}
	h.mu.Unlock()
	switch {
	case over: // told while this publish was under way
		n.OnEnd(func(committed bool) {
			if committed {
				w.Committed(x)
			}
		})
	case !known:
		n.OnEnd(func(committed bool) { w.heardOf(h, committed) })
	}
}

func (w *Waker) heardOf(h *heard, committed bool) {
	h.mu.Lock()
	rows := h.rows
	h.rows, h.over = lookup{}, true
	h.mu.Unlock()
	if committed {
		w.ripen(rows, lookFirst, lookLast, lookFor)
	}
}
