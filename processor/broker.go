package processor

import (
	"context"
	"time"

	"github.com/capbus/gocap/internal/rows"
)

// BrokerAway returns since when nothing is sent because the broker is away; zero:
// it is not.
func (d *Dispatcher) BrokerAway() time.Time {
	d.breaker.mu.Lock()
	defer d.breaker.mu.Unlock()
	return d.breaker.since
}

// brokerAway gives the number up when the broker has been away for a lease, and
// nothing is in hand: an instance that reaches it sends what is published.
func (d *Dispatcher) brokerAway(since time.Duration) {
	if since >= d.keeper.Lease() && d.desk.Hand.Len() == 0 {
		for _, k := range d.keepers() {
			k.Rest()
		}
	}
}

// keepers own the rows that are sent.
func (d *Dispatcher) keepers() []*rows.Keeper {
	return append([]*rows.Keeper{d.keeper}, d.cfg.Also...)
}

func (d *Dispatcher) brokerBack(ctx context.Context) {
	d.cfg.Trace.breaker(ctx, d.cfg.Log, nil)
	for _, k := range d.keepers() {
		k.Resume()
	}
	d.retry.Kick()
	d.order.Kick()
}
