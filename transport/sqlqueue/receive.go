package sqlqueue

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/transport"
)

// receiver is one call of Receive.
type receiver struct {
	*core

	group  group
	id     int64 // in the table of receivers
	window int
	hand   *hand
	wake   chan struct{} // has a token when there may be something new
	// lose ends the receiver before its time: what it has is delivered again.
	lose func(cause error)

	// lease is the moment, in ns since born, up to which others leave alone what
	// this receiver has: counted from before the renewal was sent.
	born  time.Time
	lease atomic.Int64

	mu     sync.Mutex
	queue  []transport.Delivery // taken, and not yet delivered
	nacked time.Time            // when the next one that was given back is due
	queued chan struct{}        // has a token when there is something in the queue
}

// Receive delivers what the group gets; receivers of one group compete, over all
// processes. It returns an error that wraps transport.ErrUnavailable when the
// database is lost or the lease could not be renewed.
func (t *Transport) Receive(ctx context.Context, src transport.Source, deliver func(context.Context, []transport.Delivery)) error {
	if src.Window < 1 {
		return fmt.Errorf("sqlqueue: group %q: window is %d, at least 1 is needed", src.Group, src.Window)
	}
	rctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &receiver{
		core: t.core, window: src.Window, hand: newHand(), wake: make(chan struct{}, 1), queued: make(chan struct{}, 1), born: time.Now(),
	}
	r.lose = func(cause error) {
		if rctx.Err() == nil { // else what is answered while it ends still counts
			cancel(cause)
			r.hand.close()
		}
	}
	err := r.enter(rctx, t, src)
	if err == nil {
		r.run(rctx, deliver)
		err = context.Cause(rctx)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// enter declares the source and adds a row for this receiver. Rows that have run
// out a while ago are nobody's any more.
func (r *receiver) enter(ctx context.Context, t *Transport, src transport.Source) error {
	var err error
	if r.group, err = t.declare(ctx, src); err != nil {
		return err
	}
	sent := time.Now()
	ids, err := r.column(ctx, `WITH old AS (
	DELETE FROM `+r.tables.receivers+` WHERE id IN (
		SELECT id FROM `+r.tables.receivers+` WHERE lives_until < clock_timestamp() - interval '1 hour' FOR UPDATE SKIP LOCKED)
)
INSERT INTO `+r.tables.receivers+` (group_id, lives_until)
SELECT id, clock_timestamp() + $2::bigint * interval '1 microsecond' FROM `+r.tables.groups+` WHERE id = $1 RETURNING id`,
		r.group.id, r.cfg.Lease.Microseconds())
	if err == nil && len(ids) != 1 {
		err = unavailable(fmt.Errorf("group %q was dropped while it was declared", src.Group))
	}
	if err != nil {
		return lasting(err)
	}
	r.id = ids[0]
	r.renewed(sent)
	if err := r.join(r); err != nil {
		r.goAway(ctx)
		return err
	}
	return nil
}

// run delivers until the context ends. Then it stores what was answered, and gives
// back the rest.
func (r *receiver) run(ctx context.Context, deliver func(context.Context, []transport.Delivery)) {
	l := &looks{schema: schema{r.tables}, r: r, done: ctx.Done()}
	l.begin(r.window)
	sub, msgs, err := r.subscribe(ctx, l)
	if err != nil {
		r.lose(unavailable(err))
	}
	var work sync.WaitGroup
	last, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	open, end := context.WithCancel(last)
	defer end()
	work.Go(func() { r.tellAll(last, open.Done()) })
	work.Go(func() { r.beat(open) })
	work.Go(func() { r.sweepNowAndThen(open) })
	work.Go(func() {
		for m := range msgs {
			m.Ack() // the look goes on to its commit
		}
	})
	for batch := r.next(ctx); batch != nil; batch = r.next(ctx) {
		deliver(ctx, batch)
	}
	if sub != nil {
		_ = sub.Close() // waits for the look that is under way; it returns nil
	}
	l.timer.Stop()
	r.hand.close()
	defer time.AfterFunc(endTimeout, giveUp).Stop()
	end()
	work.Wait()
	r.goAway(last)
	r.leave(r)
	r.core.wake(map[int64]struct{}{r.group.id: {}})
}

func (r *receiver) subscribe(ctx context.Context, l *looks) (*wmsql.Subscriber, <-chan *message.Message, error) {
	deadline := r.cfg.RequestTimeout
	none := make(chan *message.Message)
	close(none)
	sub, err := wmsql.NewSubscriber(beginner{r.db}, wmsql.SubscriberConfig{
		AckDeadline: &deadline, BackoffManager: l, SchemaAdapter: l, OffsetsAdapter: noOffsets{},
	}, l)
	if err != nil {
		return nil, none, err
	}
	msgs, err := sub.Subscribe(ctx, queue)
	if err != nil {
		return nil, none, err
	}
	return sub, msgs, nil
}

// goAway deletes the row. If it cannot, the row runs out.
func (r *receiver) goAway(ctx context.Context) {
	err := again(func() error {
		_, err := r.exec(ctx, `DELETE FROM `+r.tables.receivers+` WHERE id = $1`, r.id)
		return err
	})
	if err != nil {
		r.cfg.Logger.Warn("receiver not ended; others get what it had when its lease has run out", "transport", "sqlqueue", "err", err)
	}
}

// pass queues what a look has taken.
func (r *receiver) pass(taken []*delivery) {
	r.hand.add(taken)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range taken {
		r.queue = append(r.queue, d)
	}
	signal(r.queued)
}

// next waits for deliveries; nil: the receiver ends.
func (r *receiver) next(ctx context.Context) []transport.Delivery {
	for {
		if ctx.Err() != nil {
			return nil
		}
		r.mu.Lock()
		batch := r.queue
		r.queue = nil
		r.mu.Unlock()
		if len(batch) > 0 && !r.living() {
			r.lose(errLeaseLost)
			return nil
		}
		if len(batch) > 0 {
			return batch
		}
		select {
		case <-r.queued:
		case <-ctx.Done():
		}
	}
}

func (r *receiver) nackedUntil() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.nacked
	r.nacked = time.Time{}
	return at
}

func (r *receiver) renewed(sent time.Time) {
	r.lease.Store(int64(sent.Add(r.cfg.Lease).Sub(r.born)))
}

func (r *receiver) living() bool { return int64(time.Since(r.born)) < r.lease.Load() }
