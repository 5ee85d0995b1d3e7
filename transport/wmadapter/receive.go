package wmadapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/transport"
)

// Receive subscribes to the topics of the source and delivers. Each call has a
// subscriber of its own. It returns an error that wraps transport.ErrUnavailable
// when a subscription cannot be made, or ends.
func (t *Transport) Receive(ctx context.Context, src transport.Source, deliver func(context.Context, []transport.Delivery)) error {
	if err := t.checkSource(src); err != nil {
		return err
	}
	err := t.receive(ctx, src, deliver)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (t *Transport) checkSource(src transport.Source) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("wmadapter: group %q: %w", src.Group, fmt.Errorf(format, args...))
	}
	switch {
	case t.closed.Load():
		return errClosed
	case src.Group == "":
		return errors.New("wmadapter: source without a group")
	case t.cfg.Subscriber == nil:
		return fail("Config.Subscriber is not set; it makes the subscriber of a group")
	case src.Window < 1:
		return fail("window is %d, at least 1 is needed", src.Window)
	case src.Retry != nil:
		return fail("broker retry is not among the Traits; give the group an inbox")
	case src.Ordered:
		return fail("an ordered group is not among the Traits")
	}
	for _, p := range src.Topics {
		if err := transport.CheckPattern(p); err != nil {
			return fail("%w", err)
		}
		if transport.IsPattern(p) && !t.cfg.Wildcards {
			return fail("topic %q has a wildcard, which a Watermill subscriber need not know; list the topics, or set Config.Wildcards if this one does", p)
		}
	}
	return nil
}

func (t *Transport) receive(ctx context.Context, src transport.Source, deliver func(context.Context, []transport.Delivery)) error {
	sub, err := t.subscriber(ctx, src.Group)
	if err != nil {
		return unavailable(fmt.Errorf("group %q: %w", src.Group, err))
	}
	// The subscriptions outlive ctx until the last acks are told.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	rctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	r := &receiver{
		t: t, sub: sub, lose: lose,
		window: make(chan struct{}, src.Window), arrived: make(chan struct{}, 1),
		ending: make(chan struct{}), over: make(chan struct{}), settled: make(chan struct{}, 1),
		held: map[string]*item{}, owed: map[string]struct{}{},
	}
	defer r.end(ctx, end)
	if err := r.subscribe(ctx, life, src); err != nil {
		return unavailable(fmt.Errorf("group %q: %w", src.Group, err))
	}
	r.loop(rctx, deliver)
	return unavailable(fmt.Errorf("group %q: %w", src.Group, context.Cause(rctx)))
}

// subscriber makes one, or closes it if it comes too late.
func (t *Transport) subscriber(ctx context.Context, group string) (message.Subscriber, error) {
	var sub message.Subscriber
	var taken atomic.Bool // by who waits for it, or by who gives up
	err := t.call(ctx, t.cfg.SubscribeTimeout, "make a subscriber", func() (err error) {
		made, err := t.cfg.Subscriber(group)
		if err != nil {
			return err
		}
		if made == nil {
			return errors.New("Config.Subscriber returned nil")
		}
		sub = made
		if taken.Swap(true) {
			return made.Close()
		}
		return nil
	})
	if err == nil {
		return sub, nil
	}
	if taken.Swap(true) { // it has come meanwhile
		err = errors.Join(err, t.call(ctx, t.cfg.CloseTimeout, "close of a subscriber", func() error { return sub.Close() }))
	}
	return nil, err
}

// receiver is one call of Receive.
type receiver struct {
	t       *Transport
	sub     message.Subscriber
	lose    context.CancelCauseFunc
	window  chan struct{} // a token for each message that is not answered
	arrived chan struct{} // has a token when there is something in queued
	ending  chan struct{} // closed when nothing more is taken
	over    chan struct{} // closed when the subscriptions have had their time to end
	settled chan struct{} // has a token when no ack is under way any more
	pumps   sync.WaitGroup

	mu     sync.Mutex
	queued []*item
	held   map[string]*item    // not acked, by item.key
	owed   map[string]struct{} // acked when the subscriber had taken them back
	acking int                 // acks that the subscriber has not dealt with
	closed bool
}

// subscribe makes all subscriptions before anything is delivered. Each may hold a
// message that nobody can have while the window is full, so there are no more of
// one topic than fit into it.
func (r *receiver) subscribe(ctx, life context.Context, src transport.Source) error {
	topics := slices.Compact(slices.Sorted(slices.Values(src.Topics)))
	type subscription struct {
		topic string
		in    <-chan *message.Message
	}
	var all []subscription
	for _, topic := range topics {
		for range min(r.t.cfg.Subscriptions, src.Window) {
			in := make(chan (<-chan *message.Message), 1)
			err := r.t.call(ctx, r.t.cfg.SubscribeTimeout, fmt.Sprintf("subscribe to %q", topic), func() error {
				c, err := r.sub.Subscribe(life, r.t.cfg.TopicName(topic))
				if c == nil && err == nil {
					err = errors.New("it returned no channel and no error")
				}
				in <- c
				return err
			})
			if err != nil {
				return err
			}
			all = append(all, subscription{topic, <-in})
		}
	}
	for _, s := range all {
		r.pumps.Go(func() { r.pump(s.topic, s.in) }) //nolint:contextcheck // each message has its own
	}
	return nil
}

// pump takes messages off a subscription, as the window allows, until it ends.
// What comes while the receiver ends is left unanswered.
func (r *receiver) pump(topic string, in <-chan *message.Message) {
	for {
		select {
		case wm, open := <-in:
			if !open {
				r.lose(fmt.Errorf("topic %q: %w", topic, errEnded))
				return
			}
			if phantom(wm) {
				if wm != nil {
					wm.Ack()
				}
				continue
			}
			r.admit(topic, wm)
		case <-r.over:
			return
		}
	}
}

func (r *receiver) admit(topic string, wm *message.Message) {
	if r.returned(topic, wm) {
		return
	}
	select {
	case r.window <- struct{}{}:
	case <-r.ending:
		return
	}
	it := &item{r: r, topic: topic}
	r.mu.Lock()
	it.came(wm)
	r.held[it.key()] = it
	r.queued = append(r.queued, it)
	r.mu.Unlock()
	signal(r.arrived)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (r *receiver) loop(ctx context.Context, deliver func(context.Context, []transport.Delivery)) {
	for ctx.Err() == nil {
		select {
		case <-r.arrived:
			if batch := r.batch(); len(batch) > 0 {
				deliver(ctx, batch)
			}
		case <-ctx.Done():
		}
	}
}

// batch makes deliveries of what is queued.
func (r *receiver) batch() []transport.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]transport.Delivery, len(r.queued))
	for i, it := range r.queued {
		all[i] = &delivery{it: it, msg: incoming(it.wm, it.topic)}
	}
	r.queued = nil
	return all
}
