package subscribe

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/capbus/gocap/storage"
)

// txPlaces bounds the inbox transactions that are open at once, where the
// storage says how many can be.
type txPlaces struct {
	store storage.Storage
	free  chan struct{} // nil: no bound
	hold  time.Duration // the longest that one may be open, if there is a bound
}

func newTxPlaces(store storage.Storage, hold time.Duration) *txPlaces {
	p := &txPlaces{store: store}
	if l, ok := store.(storage.TxLimiter); ok && l.MaxTx() > 0 {
		p.free, p.hold = make(chan struct{}, l.MaxTx()), hold
	}
	return p
}

// begin waits for a place and begins. The waiting is part of the handler's time,
// and holds nothing.
func (p *txPlaces) begin(ctx context.Context) (storage.Tx, error) {
	if p.free != nil {
		select {
		case p.free <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	tx, err := p.store.Begin(ctx)
	if err != nil {
		p.leave()
	}
	return tx, err
}

func (p *txPlaces) leave() {
	if p.free != nil {
		<-p.free
	}
}

// inboxTx is the inbox transaction of one attempt: it begins when the handler
// first asks for it.
type inboxTx struct {
	places *txPlaces
	ctx    context.Context //nolint:containedctx // the attempt's, which bounds the transaction
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	tx     storage.Tx
	failed error // why it could not begin
	ended  bool
	timer  *time.Timer
}

// get begins the transaction, or returns it.
func (x *inboxTx) get() (storage.Tx, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return nil, fmt.Errorf("inbox transaction: the handler has returned: %w", storage.ErrTxDone)
	}
	if x.tx != nil {
		return x.tx, nil
	}
	if cause := context.Cause(x.ctx); cause != nil { // the handler's doing, not the database's
		return nil, fmt.Errorf("inbox transaction: %w", cause)
	}
	tx, err := x.places.begin(x.ctx)
	if err != nil {
		x.failed = fmt.Errorf("inbox transaction: %w", err)
		return nil, x.failed
	}
	x.tx, x.failed = tx, nil
	context.AfterFunc(x.ctx, x.places.leave) // the end of the attempt, and of the transaction
	if x.places.hold > 0 {
		x.timer = time.AfterFunc(x.places.hold, func() {
			x.cancel(fmt.Errorf("the handler held the inbox transaction for %s, while all other writes to the database waited: "+
				"do what takes long before it, or in a handler without one: %w", x.places.hold, context.DeadlineExceeded))
		})
	}
	return tx, nil
}

// end lets nobody begin it any more. It returns the transaction, nil if there is
// none, and why it could not begin.
func (x *inboxTx) end() (tx storage.Tx, failed error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	if x.timer != nil {
		x.timer.Stop()
	}
	return x.tx, x.failed
}
