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
	cuts   chan struct{}   // closed and replaced at each cut
	mixed  map[string]bool // ids of late answers, see cutMixes
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
	cutDrops     bool // what was in hand at a cut
	cutDeaf      bool // a Receive does not notice a cut, and gets nothing more
	cutMixes     bool // late answers count for what others have in hand
	failAtOnce   bool
	failToAll    bool // what fails goes to all groups
	failForever  bool // nothing is parked
	nackCounts   bool // as an attempt
	parkTries    bool // what is parked comes again
	notSingle    bool // an ordered source is as any other
	lostAtEnd    bool // what a lost receiver had comes again, behind the rest
	sick         bool
}

type bqueue struct {
	patterns []string
	msgs     []*transport.Message
	changed  chan struct{}  // closed and replaced at each change
	failures map[string]int // by id
	deaf     bool
	single   bool
	line     []*breceiver // in the order in which they came
}

func newBroker(w wrong) *broker {
	return &broker{wrong: w, quit: make(chan struct{}), cuts: make(chan struct{}), mixed: map[string]bool{}, queues: make(map[string]*bqueue)}
}

func (b *broker) Traits() transport.Traits {
	return transport.Traits{Name: "broker", Ordered: true, SingleActive: true, Routing: true, Wildcards: true, BrokerRetry: true, MaxMessage: 1 << 20}
}

// cut loses every Receive.
func (b *broker) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cutDeaf {
		for _, q := range b.queues {
			q.deaf = true
		}
		return
	}
	close(b.cuts)
	b.cuts = make(chan struct{})
}

func (b *broker) lifetime() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cuts
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
		q = &bqueue{changed: make(chan struct{}), failures: map[string]int{}}
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
	cut := b.lifetime()
	r := &breceiver{b: b, q: b.declare(src), ctx: ctx, window: src.Window, retry: src.Retry}
	r.join()
	defer r.leave()
	for {
		select {
		case <-cut:
			r.dropped = b.cutDrops
			return transport.ErrUnavailable
		default:
		}
		batch, changed := r.take()
		if len(batch) > 0 {
			deliver(ctx, batch)
		}
		if ctx.Err() == nil && len(batch) == 0 {
			select {
			case <-changed:
			case <-cut:
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
	retry  *transport.BrokerRetry
	held   []*bdelivery
	again  []*transport.Message // comes again although it was acked
	left   bool
	// dropped: what is in hand at the end is lost
	dropped bool
}

func (r *breceiver) take() (batch []transport.Delivery, changed <-chan struct{}) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	for len(r.q.msgs) > 0 && !r.q.deaf && (!r.q.single || r.q.line[0] == r) && (r.b.noWindow || len(r.held) < r.window) {
		i := 0
		if r.b.backwards {
			i = len(r.q.msgs) - 1
		}
		d := &bdelivery{r: r, stored: r.q.msgs[i]}
		d.msg = r.b.copy(d.stored)
		r.q.msgs = slices.Delete(r.q.msgs, i, i+1)
		r.held = append(r.held, d)
		if r.retry != nil {
			batch = append(batch, &bretrier{bdelivery: d, attempt: r.q.failures[d.stored.ID] + 1})
		} else {
			batch = append(batch, d)
		}
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
	if r.b.lostDrops || r.dropped {
		return
	}
	var back []*transport.Message
	for _, d := range r.held {
		if !r.b.mixed[d.stored.ID] {
			back = append(back, d.stored)
		}
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
	if b.nackCounts {
		d.r.q.failures[d.stored.ID]++
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
	if d.r.left && d.r.b.cutMixes {
		d.r.b.mixed[d.stored.ID] = true
	}
	if d.answered || d.r.left {
		return false
	}
	d.answered = true
	d.r.held = slices.DeleteFunc(d.r.held, func(h *bdelivery) bool { return h == d })
	d.r.q.put() // there is room
	return true
}

// bretrier is a delivery of a Source with Retry.
type bretrier struct {
	*bdelivery

	attempt int
}

func (d *bretrier) Attempt() int { return d.attempt }

func (d *bretrier) Fail(context.Context, error) (bool, error) {
	b, q := d.r.b, d.r.q
	b.mu.Lock()
	defer b.mu.Unlock()
	if !d.answer() {
		return false, nil
	}
	q.failures[d.stored.ID]++
	if q.failures[d.stored.ID] >= d.r.retry.Attempts && !b.failForever {
		delete(q.failures, d.stored.ID)
		return true, nil
	}
	wait := d.r.retry.Wait
	if b.failAtOnce {
		wait = 0
	}
	time.AfterFunc(wait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, other := range b.queues {
			if other == q || b.failToAll && b.copies(other, d.stored.Topic) > 0 {
				other.put(d.stored)
			}
		}
	})
	return false, nil
}

func (d *bretrier) Park(context.Context, error) error {
	b := d.r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.answer() && b.parkTries {
		d.r.q.put(d.stored)
	}
	return nil
}
