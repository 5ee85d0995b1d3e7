package rows

import (
	"context"
	"sync"

	"github.com/capbus/gocap/storage"
)

// callbacks makes the callback of final failed rows, one after another, off the
// path of the engine. A row stays in hand, and due in the table, until its
// callback has returned: if the process dies before, another makes it.
type callbacks struct {
	desk *Desk
	wake chan struct{}

	mu    sync.Mutex
	queue []*Row
}

// add is called while the desk cannot begin to drain.
func (c *callbacks) add(r *Row) {
	// A row of a group, but of no subscription, is found by no look.
	keep := r.Group != "" && r.Subscriber == ""
	c.mu.Lock()
	full := len(c.queue) >= c.desk.cfg.Waiting && !keep
	if !full {
		c.queue = append(c.queue, r)
	}
	c.mu.Unlock()
	if full {
		c.desk.GiveBack(r) // still due: a later look finds it
		return
	}
	signal(c.wake)
}

func (c *callbacks) next() *Row {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return nil
	}
	r := c.queue[0]
	c.queue = c.queue[1:]
	return r
}

// drop empties the queue: the callbacks are still owed.
func (c *callbacks) drop() {
	for r := c.next(); r != nil; r = c.next() {
		c.desk.GiveBack(r)
	}
}

// run makes callbacks. One that ends its goroutine (runtime.Goexit, as FailNow of
// a test does) takes this one with it: another goes on, by again.
func (c *callbacks) run(ctx context.Context, again func()) {
	whole := false
	defer func() {
		if !whole {
			again()
		}
	}()
	for {
		if r := c.next(); r != nil {
			c.make(ctx, r)
			continue
		}
		select {
		case <-c.wake:
			continue
		case <-c.desk.closing:
		case <-ctx.Done():
		}
		c.drop()
		whole = true
		return
	}
}

func (c *callbacks) make(ctx context.Context, r *Row) {
	if r.Tenure.Over() {
		c.desk.GiveBack(r) // whoever takes the row makes it
		return
	}
	began(r)
	defer func() { // it was made, even if it ended its goroutine or panicked
		if ctx.Err() != nil { // cut by a stop: whether it did its work is not known
			c.desk.GiveBack(r)
			return
		}
		c.desk.Settle(r, storage.Outcome{ID: r.ID, Kind: storage.CallbackDone})
	}()
	c.desk.cfg.Callback(ctx, r)
}
