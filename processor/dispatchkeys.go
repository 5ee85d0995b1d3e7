package processor

import "github.com/capbus/gocap/internal/rows"

// Order feeds it with rows that have a key; its Run does the work.
func (d *Dispatcher) Order() *Order { return d.order }

// OnAlsoKeys lets k know, too, of rows with a key. It is called before Run.
func (d *Dispatcher) OnAlsoKeys(k rows.Keyed) { d.desk.Order(k) }

// KeyRoom implements KeyTaker. Rows with a key have a window of their own: they
// and the others do not hold up each other.
func (d *Dispatcher) KeyRoom() []KeyLane {
	if d.breaker.isOpen() || d.desk.Draining() {
		return nil
	}
	free := d.cfg.SendWindow - int(d.keyed.Load())
	if d.bytes.Load() > rows.MaxHandBytes {
		free = 0
	}
	return []KeyLane{{Limit: free}}
}

// KeysFreed implements KeyTaker.
func (d *Dispatcher) KeysFreed() <-chan struct{} { return d.keyFree }
