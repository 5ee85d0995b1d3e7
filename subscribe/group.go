package subscribe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/capbus/gocap/internal/backoff"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// minWindow is the least number of rows that may wait in memory for the workers
// of a group: enough that a batch of the inbox keeps them busy.
const minWindow = 512

// group is the subscriptions that share a queue, a pool of workers, and the
// room for rows that come from the transport.
type group struct {
	c       *Consumer
	name    string
	source  transport.Source
	routes  []*route
	queue   *rows.Queue[*route]
	workers int
	window  int
	bytes   atomic.Int64 // of headers and bodies in hand
	direct  atomic.Int64 // deliveries in hand, without an inbox
	nobody  *route       // handles those that match no subscription

	mu        sync.Mutex
	free      *sync.Cond
	fresh     int // rows from the transport in hand
	pause     pausing
	receivers receiving
	runs      map[*Run]bool // handlers that run; true: of a row
}

// route is a subscription as this bus serves it.
type route struct {
	group       *group
	name        string // subscriber
	topic       string // pattern
	handler     Handler
	policy      rows.Policy
	timeout     time.Duration
	concurrency int
	looked      atomic.Int64 // rows from the table in hand
	ordered     bool
	replies     bool         // its handler answers
	keyed       atomic.Int64 // rows with a key in hand
}

func newGroup(c *Consumer, name string) *group {
	g := &group{
		c: c, name: name, workers: max(1, c.cfg.Concurrency), window: minWindow,
		source: transport.Source{Group: c.queueName(name), Window: max(1, c.cfg.BatchSize)},
	}
	g.free = sync.NewCond(&g.mu)
	g.pause.changed, g.receivers.begun, g.runs = make(chan struct{}), map[*receiver]struct{}{}, map[*Run]bool{}
	g.nobody = &route{group: g, handler: HandlerFunc(nobody)}
	g.queue = rows.NewQueue(func(rt *route) int {
		if rt.concurrency > 0 {
			return rt.concurrency
		}
		return g.workers
	})
	return g
}

// handlerOf is the handler of a subscription in its middleware.
func (c *Consumer) handlerOf(s Subscription) (Handler, error) {
	codec := c.cfg.Codec
	if s.codec != nil {
		codec = s.codec
	}
	h := s.build(codec)
	for i, mw := range slices.Backward(slices.Concat(c.cfg.Middleware, s.middleware)) {
		if h = mw(h); h == nil {
			return nil, fmt.Errorf("subscription %s: middleware %d, counted from the outermost, returned a nil Handler", s, i+1)
		}
	}
	return h, nil
}

func newRoute(c *Consumer, g *group, s Subscription, h Handler) *route {
	rt := &route{
		group: g, name: s.name, topic: s.topic, policy: c.cfg.Policy,
		timeout: c.cfg.Timeout, concurrency: s.concurrency, ordered: s.ordered, replies: s.replies, handler: h,
	}
	if s.timeout > 0 {
		rt.timeout = s.timeout
	}
	if s.retryCount > 0 {
		rt.policy.Count = s.retryCount
	}
	if s.retryInterval > 0 {
		rt.policy.Interval = s.retryInterval
	}
	if s.backoff != nil {
		rt.policy.Backoff = s.backoff
	}
	g.routes = append(g.routes, rt)
	g.source.Topics = append(g.source.Topics, s.topic)
	g.source.Ordered = g.source.Ordered || s.ordered
	g.source.Retry = s.retry
	g.workers = max(g.workers, s.concurrency)
	g.window = max(minWindow, 4*g.workers)
	return rt
}

// boundDirect has the broker deliver to a group without an inbox no more than
// keeps its workers busy: others of the group may have free ones.
func (g *group) boundDirect() {
	if g.source.Retry != nil {
		g.source.Window = max(1, (2*g.workers+g.receiverCount()-1)/max(1, g.receiverCount()))
	}
}

// receive takes deliveries until ctx ends, unless the group is paused. A source
// that is lost is asked for again, with a backoff.
func (g *group) receive(take, work context.Context) {
	wait := backoff.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
	for take.Err() == nil {
		until, cancel, ok := g.untilPaused(take)
		if !ok {
			return
		}
		begun := time.Now()
		err := g.receiveOnce(until, func(ctx context.Context, batch []transport.Delivery) { g.deliver(ctx, work, batch) })
		paused := until.Err() != nil
		cancel()
		if take.Err() != nil {
			return
		}
		if paused {
			continue
		}
		g.interrupted(take, &wait, begun, err)
	}
}

// interrupted waits until it is worth another try.
func (g *group) interrupted(take context.Context, wait *backoff.Backoff, begun time.Time, err error) {
	if time.Since(begun) > 10*time.Second {
		wait.Reset()
	}
	g.c.cfg.Log.Warn(take, "receiving interrupted, trying again", g.name, slog.String("group", g.name), slog.Any("err", err))
	wait.Sleep(take)
}

func (g *group) receiveOnce(take context.Context, deliver func(context.Context, []transport.Delivery)) (err error) {
	ends := g.receiverBegins()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("transport panicked: %v", p)
		}
		if err == nil && take.Err() == nil {
			err = errSourceEnded
		}
		ends(err)
	}()
	return g.c.cfg.Transport.Receive(take, g.source, deliver)
}

var errSourceEnded = errors.New("the transport stopped receiving, without an error")

// waitRoom blocks while the group has its window full of rows from the
// transport, so that receiving pauses when handlers are slow.
func (g *group) waitRoom(ctx context.Context) bool {
	stop := context.AfterFunc(ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.free.Broadcast()
	})
	defer stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.fullLocked() && ctx.Err() == nil {
		g.free.Wait()
	}
	return ctx.Err() == nil
}

// full reports whether the group can take no more from the transport.
func (g *group) full() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fullLocked()
}

func (g *group) fullLocked() bool {
	return g.fresh >= g.window || g.bytes.Load() > rows.MaxHandBytes
}

// addFresh is called when a row from the transport is in hand.
func (g *group) addFresh(rec *storage.Record) {
	g.bytes.Add(rows.Size(rec))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fresh++
}

// leave is called when a row has left the hand.
func (g *group) leave(r *rows.Row) {
	g.bytes.Add(-rows.Size(r.Record))
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.Fresh {
		g.fresh--
	}
	g.free.Broadcast()
}
