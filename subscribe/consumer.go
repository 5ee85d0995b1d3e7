package subscribe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// ConsumerConfig configures a Consumer. All fields are required, unless said.
type ConsumerConfig struct {
	Storage   storage.Storage
	Transport transport.Transport
	Keeper    *rows.Keeper
	// Also own rows of other versions that this consumer works on, too; may be
	// empty. They share the pulse of Keeper.
	Also          []*rows.Keeper
	Log           *quiet.Logger
	Codec         transport.Codec
	Subscriptions []Subscription
	Middleware    []Middleware // of all subscriptions; may be empty
	// Version, and the names that complete those of the subscriptions; the
	// prefixes may be empty.
	Version, DefaultGroup, GroupPrefix, TopicPrefix string
	Policy                                          rows.Policy
	// Callback is made for a message that failed for good; may be nil.
	Callback func(ctx context.Context, rec *storage.Record, m *transport.Message)
	// Reply publishes an answer, with the context of its handler; may be nil where
	// nothing answers.
	Reply func(ctx context.Context, out Outgoing) error
	// AllowedReplies are the topics, or patterns, where a message may want its
	// answer.
	AllowedReplies []string
	// Context completes the context of a handler; may be nil.
	Context func(context.Context) context.Context
	// KeepDone is how long a handled row stays.
	KeepDone time.Duration
	// Receivers a group, and workers a group.
	Receivers, Concurrency int
	BatchSize              int
	Timeout                time.Duration // of a run; 0: none
	// UnhandledAfter is how long a row waits for a subscription; AdoptInterval
	// is how often such rows are looked for.
	UnhandledAfter, AdoptInterval time.Duration
	// Probation is how long this process must have lived before it tries rows
	// again that saw two deaths or more.
	Probation time.Duration
	MaxBytes  int    // of headers and bodies read at once
	Locked    bool   // as in processor.NeedRetryConfig
	Trace     *Trace // may be nil
	// TxHold is how long a handler may hold the inbox transaction where others
	// wait for it (storage.TxLimiter); 0: no bound.
	TxHold time.Duration
}

// Consumer receives the messages of its groups into the inbox and runs their
// handlers.
type Consumer struct {
	cfg    ConsumerConfig
	desk   *rows.Desk
	groups []*group
	lanes  map[laneKey]*route
	places *txPlaces
	freed  chan struct{}
	later  func(in time.Duration, passed bool)
	keys   Keys
	// keyFree is signalled when a row with a key has left the hand.
	keyFree chan struct{}
}

type laneKey struct{ group, subscriber string }

// NewConsumer returns a Consumer; its Run does the work. The error names every
// subscription that cannot be served.
func NewConsumer(cfg ConsumerConfig) (*Consumer, error) {
	c := &Consumer{cfg: cfg, lanes: map[laneKey]*route{}, places: newTxPlaces(cfg.Storage, cfg.TxHold), freed: make(chan struct{}, 1), keyFree: make(chan struct{}, 1), later: func(time.Duration, bool) {}}
	if err := c.resolve(); err != nil {
		return nil, err
	}
	dc := rows.Config{
		Log: cfg.Log, Policy: cfg.Policy, Batch: cfg.BatchSize, Suspects: max(1, cfg.Concurrency), Probation: cfg.Probation,
		Settled: cfg.Trace.settled(cfg.Log), Start: c.start, Freed: c.onFreed, Later: func(in time.Duration, passed bool) { c.later(in, passed) },
	}
	if cfg.Callback != nil {
		dc.Callback = func(ctx context.Context, r *rows.Row) { cfg.Callback(ctx, r.Record, message(r.Record)) }
	}
	c.desk = rows.NewDesk(dc)
	cfg.Keeper.Pulse().Busy = c.busy
	c.askGlances()
	return c, nil
}

// OnLater lets f know that a row will be due in so long, and whether a look has
// passed it while it was in hand. It is called before Run.
func (c *Consumer) OnLater(f func(in time.Duration, passed bool)) { c.later = f }

// Hand is what this consumer has in hand.
func (c *Consumer) Hand() *rows.Hand { return &c.desk.Hand }

// InWork is how many messages this consumer has in hand, with those of groups
// without an inbox.
func (c *Consumer) InWork() int {
	n := c.desk.Hand.Len()
	for _, g := range c.groups {
		n += int(g.direct.Load())
	}
	return n
}

// Groups are the groups that Run serves.
func (c *Consumer) Groups() []string {
	names := make([]string, len(c.groups))
	for i, g := range c.groups {
		names[i] = g.name
	}
	return names
}

// Sources are the queues that Run receives from.
func (c *Consumer) Sources() []transport.Source {
	srcs := make([]transport.Source, len(c.groups))
	for i, g := range c.groups {
		srcs[i] = g.source
	}
	return srcs
}

// Run starts handlers until take ends, receives until receive ends, lets handlers
// run on the context work, and stores outcomes until last ends; then it has
// finished. Each is to end no earlier than the one before. What is received
// after take has ended is stored and acked, and left to whoever runs next; a
// group without an inbox gives it back.
func (c *Consumer) Run(take, receive, work, last context.Context) {
	var loops, desk sync.WaitGroup
	desk.Go(func() { c.desk.Run(work, last) })
	for _, g := range c.groups {
		for range g.receiverCount() {
			if g.source.Retry != nil {
				loops.Go(func() { g.receiveDirect(take, last) })
				continue
			}
			loops.Go(func() { g.receive(receive, work) })
		}
		for range g.workers {
			var worker func()
			worker = func() { g.work(take, work, func() { loops.Go(worker) }) }
			loops.Go(worker)
		}
	}
	if len(c.groups) > 0 {
		for _, k := range append([]*rows.Keeper{c.cfg.Keeper}, c.cfg.Also...) {
			loops.Go(func() { c.adopt(take, k) })
		}
	}
	<-take.Done()
	c.desk.Drain()
	c.giveBackQueued()
	loops.Wait()
	c.giveBackQueued() // what was added meanwhile
	c.desk.Close()
	desk.Wait()
}

func (c *Consumer) giveBackQueued() {
	for _, g := range c.groups {
		g.giveBackQueued()
	}
}

// Room says which subscriptions can take rows from the table now. Those that
// come from the transport have room of their own.
func (c *Consumer) Room() []storage.Lane {
	if c.desk.Draining() {
		return nil
	}
	var lanes []storage.Lane
	for _, g := range c.groups {
		if g.bytes.Load() > rows.MaxHandBytes || g.isPaused() {
			continue
		}
		for _, rt := range g.routes {
			if free := g.window - int(rt.looked.Load()); free >= max(1, g.window/4) {
				lanes = append(lanes, storage.Lane{Group: g.name, Subscriber: rt.name, Limit: free})
			}
		}
	}
	return lanes
}

// Freed is signalled when room has appeared.
func (c *Consumer) Freed() <-chan struct{} { return c.freed }

// Admit starts rows that were found in the table and are in hand.
func (c *Consumer) Admit(t *rows.Tenure, recs []*storage.Record) {
	for _, rec := range recs {
		rt := c.lanes[laneKey{rec.Group, rec.Subscriber}]
		if rt != nil {
			rt.inHand(rec).Add(1)
			rt.group.bytes.Add(rows.Size(rec))
		}
		if rt == nil && !rec.Final {
			c.unserved(t, rec)
			continue
		}
		c.desk.Admit(t, false, rec)
	}
}

// start puts a row into its group's queue.
func (c *Consumer) start(r *rows.Row) {
	rt := c.lanes[laneKey{r.Group, r.Subscriber}]
	rt.group.queue.Add(rt, r)
}

func (c *Consumer) onFreed(rs []*rows.Row) {
	for _, r := range rs {
		rt := c.lanes[laneKey{r.Group, r.Subscriber}]
		if rt == nil {
			continue
		}
		if !r.Fresh {
			rt.inHand(r.Record).Add(-1)
		}
		if r.Key != "" {
			signal(c.keyFree)
		}
		rt.group.leave(r)
	}
	signal(c.freed)
}

// resolve completes the names of the subscriptions and sorts them into groups.
func (c *Consumer) resolve() error {
	var errs []error
	full := make([]Subscription, 0, len(c.cfg.Subscriptions))
	for _, s := range c.cfg.Subscriptions {
		if s.group == "" {
			s.group = c.cfg.DefaultGroup
		}
		if s.group == "" {
			errs = append(errs, fmt.Errorf("subscription %s has no group, and Options.DefaultGroupName is not set and cannot be found out; use subscribe.Group", s))
			continue
		}
		s.group = join(c.cfg.GroupPrefix, s.group)
		s.name = s.key()
		s.topic = join(c.cfg.TopicPrefix, s.topic)
		errs = append(errs, s.Validate(), c.checkQueue(s))
		full = append(full, s)
	}
	if err := errors.Join(append(errs, duplicates(full), checkRetries(full))...); err != nil {
		return err
	}
	byName := map[string]*group{}
	for _, s := range full {
		h, err := c.handlerOf(s)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		g := byName[s.group]
		if g == nil {
			g = newGroup(c, s.group)
			byName[s.group] = g
			c.groups = append(c.groups, g)
		}
		rt := newRoute(c, g, s, h)
		c.lanes[laneKey{g.name, rt.name}] = rt
	}
	for _, g := range c.groups {
		g.boundDirect()
	}
	return errors.Join(errs...)
}

func (c *Consumer) checkQueue(s Subscription) error {
	if name := c.queueName(s.group); len(name) > transport.MaxTopicBytes {
		return fmt.Errorf("subscription %s: the queue name %q (prefix, group and version) has %d bytes; at most %d are allowed",
			s, name, len(name), transport.MaxTopicBytes)
	}
	if traits := c.cfg.Transport.Traits(); transport.IsPattern(s.topic) && !traits.Wildcards {
		return fmt.Errorf("subscription %s: transport %s has no wildcards", s, traits.Name)
	}
	if traits := c.cfg.Transport.Traits(); s.ordered && !traits.SingleActive {
		return fmt.Errorf("subscription %s: Ordered needs a queue that delivers to one consumer at a time, which transport %s has not; "+
			"take another transport, or leave Ordered out", s, traits.Name)
	}
	if traits := c.cfg.Transport.Traits(); s.retry != nil && !traits.BrokerRetry {
		return fmt.Errorf("subscription %s: transport %s cannot try a message again by itself; "+
			"leave BrokerRetry out, and the group has an inbox", s, traits.Name)
	}
	return nil
}

func (c *Consumer) queueName(group string) string { return group + "." + c.cfg.Version }

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
