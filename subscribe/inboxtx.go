package subscribe

import (
	"fmt"
	"sync"

	"github.com/capbus/gocap/storage"
)

// inboxTx is the inbox transaction of one attempt: it begins when the handler
// first asks for it.
type inboxTx struct {
	begin func() (storage.Tx, error)

	mu    sync.Mutex
	tx    storage.Tx
	ended bool
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
	tx, err := x.begin()
	if err != nil {
		return nil, fmt.Errorf("inbox transaction: %w", err)
	}
	x.tx = tx
	return tx, nil
}

// end lets nobody begin it any more and returns it; nil: nobody has.
func (x *inboxTx) end() storage.Tx {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	return x.tx
}
