package transporttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/capbus/gocap/transport"
)

// broker is a small one that keeps its queues and confirms at once, as most
// real ones do, with a switch for each thing that an adapter may get wrong.
type broker struct {
	wrong

	quit chan struct{} // frees what hangs on purpose

	mu     sync.Mutex
	queues map[string]*bqueue
}

// wrong says what is broken.
type wrong struct {
	matching     func(pattern, topic string) bool // nil: transport.Match
	change       func(m *transport.Message)       // on its way
	result       func(errs []error) []error
	shared       bool // sender and receivers hold one message
	unroutable   bool // an unroutable message counts as stored
	oneQueue     bool // all groups compete
	perPattern   bool // a copy for each pattern that matches
	noWindow     bool
	nackDrops    bool
	nackAtOnce   bool
	lostDrops    bool
	ackAgain     bool // an ack does not count
	lateAck      bool // an ack does not count once the context has ended
	twoAcks      bool // the second ack is an error
	backwards    bool // newest first
	receiveHangs bool
	receiveFails bool // returns the context's error
	sendIgnores  bool // ctx
	noDeclare    bool
	notSingle    bool // an ordered source is as any other
	lostAtEnd    bool // what a lost receiver had comes again, behind the rest
	sick         bool
}

type bqueue struct {
	patterns []string
	msgs     []*transport.Message
	changed  chan struct{} // closed and replaced at each change
	single   bool
	line     []*breceiver // in the order in which they came
}

func newBroker(w wrong) *broker {
	return &broker{wrong: w, quit: make(chan struct{}), queues: make(map[string]*bqueue)}
}

func (b *broker) Traits() transport.Traits {
	return transport.Traits{Name: "broker", Ordered: true, SingleActive: true, Routing: true, Wildcards: true, MaxMessage: 1 << 20}
}

func (b *broker) Check(context.Context) error {
	if b.sick {
		return transport.ErrUnavailable
	}
	return nil
}

func (b *broker) Send(ctx context.Context, msgs []*transport.Message) []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		errs[i] = b.sendOne(ctx, m)
	}
	if b.result != nil {
		errs = b.result(errs)
	}
	return errs
}

func (b *broker) sendOne(ctx context.Context, m *transport.Message) error {
	if ctx.Err() != nil && !b.sendIgnores {
		return fmt.Errorf("%w: %w", transport.ErrUnavailable, ctx.Err())
	}
	if err := transport.CheckTopic(m.Topic); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrRejected, err)
	}
	if len(m.Body) > 1<<20 {
		return fmt.Errorf("%w: %w", transport.ErrRejected, transport.ErrPermanent)
	}
	taken := false
	for _, q := range b.queues {
		for range b.copies(q, m.Topic) {
			q.put(b.copy(m))
			taken = true
		}
	}
	if !taken && !b.unroutable {
		return transport.ErrUnroutable
	}
	return nil
}

func (b *broker) copies(q *bqueue, topic string) int {
	match := b.matching
	if match == nil {
		match = transport.Match
	}
	n := 0
	for _, p := range q.patterns {
		if match(p, topic) {
			n++
		}
	}
	if !b.perPattern {
		n = min(n, 1)
	}
	return n
}

func (b *broker) copy(m *transport.Message) *transport.Message {
	if !b.shared {
		m = m.Clone()
	}
	if b.change != nil {
		b.change(m)
	}
	return m
}

func (q *bqueue) put(msgs ...*transport.Message) {
	q.msgs = append(q.msgs, msgs...)
	close(q.changed)
	q.changed = make(chan struct{})
}

func (b *broker) Declare(_ context.Context, src transport.Source) error {
	if !b.noDeclare {
		b.declare(src)
	}
	return nil
}

func (b *broker) declare(src transport.Source) *bqueue {
	if b.oneQueue {
		src.Group = ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[src.Group]
	if q == nil {
		q = &bqueue{changed: make(chan struct{})}
		b.queues[src.Group] = q
	}
	q.single = q.single || src.Ordered && !b.notSingle
	for _, p := range src.Topics {
		if !slices.Contains(q.patterns, p) {
			q.patterns = append(q.patterns, p)
		}
	}
	return q
}

func (b *broker) Receive(ctx context.Context, src transport.Source, deliver func(context.Context, []transport.Delivery)) error {
	r := &breceiver{b: b, q: b.declare(src), ctx: ctx, window: src.Window}
	r.join()
	defer r.leave()
	for {
		batch, changed := r.take()
		if len(batch) > 0 {
			deliver(ctx, batch)
		}
		if ctx.Err() == nil && len(batch) == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
		if ctx.Err() == nil {
			continue
		}
		if b.receiveHangs {
			<-b.quit
		}
		if b.receiveFails {
			return ctx.Err()
		}
		return nil
	}
}

// breceiver is guarded by the broker's mutex.
type breceiver struct {
	b      *broker
	q      *bqueue
	ctx    context.Context //nolint:containedctx // of the call that it stands for
	window int
	held   []*bdelivery
	again  []*transport.Message // comes again although it was acked
	left   bool
}

func (r *breceiver) take() (batch []transport.Delivery, changed <-chan struct{}) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	for len(r.q.msgs) > 0 && (!r.q.single || r.q.line[0] == r) && (r.b.noWindow || len(r.held) < r.window) {
		i := 0
		if r.b.backwards {
			i = len(r.q.msgs) - 1
		}
		d := &bdelivery{r: r, stored: r.q.msgs[i]}
		d.msg = r.b.copy(d.stored)
		r.q.msgs = slices.Delete(r.q.msgs, i, i+1)
		r.held = append(r.held, d)
		batch = append(batch, d)
		if r.b.noWindow {
			break
		}
	}
	return batch, r.q.changed
}

func (r *breceiver) join() {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.q.line = append(r.q.line, r)
}

func (r *breceiver) leave() {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.left = true
	r.q.line = slices.DeleteFunc(r.q.line, func(x *breceiver) bool { return x == r })
	r.q.put(r.again...)
	if r.b.lostDrops {
		return
	}
	var back []*transport.Message
	for _, d := range r.held {
		back = append(back, d.stored)
	}
	if r.b.lostAtEnd {
		r.q.put(back...)
		return
	}
	r.q.msgs = append(back, r.q.msgs...)
	r.q.put()
}

// bdelivery is one message in hand.
type bdelivery struct {
	r           *breceiver
	msg, stored *transport.Message
	answered    bool
}

func (d *bdelivery) Message() *transport.Message { return d.msg }

func (d *bdelivery) Ack() error {
	d.r.b.mu.Lock()
	defer d.r.b.mu.Unlock()
	if d.answered && d.r.b.twoAcks {
		return errors.New("unknown delivery")
	}
	if !d.answer() {
		return nil
	}
	if d.r.b.ackAgain || d.r.b.lateAck && d.r.ctx.Err() != nil {
		d.r.again = append(d.r.again, d.stored)
	}
	return nil
}

func (d *bdelivery) Nack(after time.Duration) error {
	b := d.r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if !d.answer() || b.nackDrops {
		return nil
	}
	again := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		d.r.q.put(d.stored)
	}
	if b.nackAtOnce {
		after = 0
	}
	time.AfterFunc(after, again)
	return nil
}

// answer reports whether this is the first one, of a receiver that is there.
func (d *bdelivery) answer() bool {
	if d.answered || d.r.left {
		return false
	}
	d.answered = true
	d.r.held = slices.DeleteFunc(d.r.held, func(h *bdelivery) bool { return h == d })
	d.r.q.put() // there is room
	return true
}
