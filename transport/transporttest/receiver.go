package transporttest

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/capbus/gocap/transport"
)

// probePrefix begins the topics by which the suite finds out whether a group is
// there and has got everything. Cases do not see these messages.
const probePrefix = "transporttest.probe."

// receiver runs one Receive and keeps what it delivers.
type receiver struct {
	e     *env
	src   transport.Source
	probe string // topic
	stopf context.CancelFunc
	done  chan struct{}
	err   error // of Receive, once done
	// inDeliver, if set, runs inside deliver for each delivery, instead of the
	// delivery being queued for next.
	inDeliver func(ctx context.Context, d *delivery)
	// again: the source may be lost, and is asked for again.
	again bool

	mu     sync.Mutex
	queue  []*delivery
	arrive chan struct{} // has a token when something came
	inHand int
	lives  int // Receives that were lost
}

// delivery is one that waits for the case's answer.
type delivery struct {
	transport.Delivery

	msg  *transport.Message
	r    *receiver
	life int
}

// receive starts a receiver and waits until its group gets messages.
func (e *env) receive(group string, window int, topics ...string) *receiver {
	r := e.start(group, window, nil, topics...)
	r.sync()
	return r
}

// receiveAgain is as receive, but asks again when the source is lost, as the
// engine does.
func (e *env) receiveAgain(group string, window int, topics ...string) *receiver {
	r := e.prepare(group, window, topics...)
	r.again = true
	r.run()
	r.sync()
	return r
}

// start starts a receiver and does not wait.
func (e *env) start(group string, window int, inDeliver func(context.Context, *delivery), topics ...string) *receiver {
	return e.startSource(transport.Source{Group: e.group(group), Topics: topics, Window: window}, inDeliver)
}

func (e *env) startSource(src transport.Source, inDeliver func(context.Context, *delivery)) *receiver {
	r := e.prepareSource(src)
	r.inDeliver = inDeliver
	r.run()
	return r
}

func (e *env) prepare(group string, window int, topics ...string) *receiver {
	return e.prepareSource(transport.Source{Group: e.group(group), Topics: topics, Window: window})
}

func (e *env) prepareSource(src transport.Source) *receiver {
	probe := probePrefix + newID()
	src.Topics = append([]string{probe}, src.Topics...)
	return &receiver{
		e:      e,
		src:    src,
		probe:  probe,
		done:   make(chan struct{}),
		arrive: make(chan struct{}, 1),
	}
}

func (r *receiver) run() {
	ctx, cancel := context.WithCancel(r.e.Context())
	r.stopf = cancel
	go func() {
		defer close(r.done)
		r.err = r.e.tr.Receive(ctx, r.src, r.deliver)
		for r.again && ctx.Err() == nil && r.err != nil {
			r.lost()
			r.e.pause()
			r.err = r.e.tr.Receive(ctx, r.src, r.deliver)
		}
		if ctx.Err() == nil {
			r.e.Errorf("receive of group %q ended by itself: %v", r.src.Group, r.err)
		}
	}()
	r.e.Cleanup(r.stop)
}

// lost forgets what was in hand: it comes again.
func (r *receiver) lost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inHand = 0
	r.queue = nil
	r.lives++
}

func (r *receiver) deliver(ctx context.Context, batch []transport.Delivery) {
	if len(batch) == 0 || len(batch) > r.src.Window {
		r.e.Errorf("deliver got %d deliveries at once, the window is %d", len(batch), r.src.Window)
	}
	for _, td := range batch {
		d := &delivery{Delivery: td, msg: td.Message(), r: r}
		switch {
		case d.msg == nil:
			r.e.Errorf("delivery without a message")
		case strings.HasPrefix(d.msg.Topic, probePrefix):
			r.probed(d)
		default:
			r.take(ctx, d)
		}
	}
}

func (r *receiver) take(ctx context.Context, d *delivery) {
	r.mu.Lock()
	r.inHand++
	d.life = r.lives
	if r.inHand > r.src.Window {
		r.e.Errorf("%d deliveries are unanswered, the window is %d", r.inHand, r.src.Window)
	}
	if r.inDeliver == nil {
		r.queue = append(r.queue, d)
	}
	r.mu.Unlock()
	if r.inDeliver != nil {
		r.inDeliver(ctx, d)
	}
	select {
	case r.arrive <- struct{}{}:
	default:
	}
}

func (r *receiver) probed(d *delivery) {
	if err := d.Ack(); err != nil {
		r.e.Logf("ack of a probe: %v", err)
	}
	if c, ok := r.e.probes.LoadAndDelete(r.src.Group + d.msg.ID); ok {
		close(c.(chan struct{}))
	}
}

// sync sends probes until one has come back. It is then certain that the group
// gets messages; on an ordered transport also that this receiver has got all
// that was sent before, if it is the only one of its group.
func (r *receiver) sync() {
	r.e.Helper()
	deadline := time.NewTimer(r.e.wait)
	defer deadline.Stop()
	for tries := 1; ; tries++ {
		m := r.e.message(r.probe, "")
		seen := make(chan struct{})
		r.e.probes.Store(r.src.Group+m.ID, seen)
		res := r.e.try(r.e.Context(), m)
		again := time.NewTimer(time.Duration(tries) * pause)
		select {
		case <-seen:
			again.Stop()
			res.wait()
			return
		case <-again.C:
		case <-deadline.C:
			r.e.Fatalf("group %q gets no messages: a probe did not arrive within %v", r.src.Group, r.e.wait)
		}
	}
}

// next returns the next delivery, or fails the case.
func (r *receiver) next() *delivery {
	r.e.Helper()
	ctx, cancel := context.WithTimeout(r.e.Context(), r.e.wait)
	defer cancel()
	d := r.nextUntil(ctx.Done())
	if d == nil {
		r.e.Fatalf("group %q: no delivery within %v", r.src.Group, r.e.wait)
	}
	return d
}

// nextUntil returns the next delivery, or nil when it is overdue.
func (r *receiver) nextUntil(overdue <-chan struct{}) *delivery {
	for {
		if d := r.poll(); d != nil {
			return d
		}
		select {
		case <-r.arrive:
		case <-overdue:
			return nil
		}
	}
}

// poll returns a delivery that has already come, or nil.
func (r *receiver) poll() *delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return nil
	}
	d := r.queue[0]
	r.queue = r.queue[1:]
	return d
}

// nextAcked returns the message of the next n deliveries, acked.
func (r *receiver) nextAcked(n int) []*transport.Message {
	r.e.Helper()
	msgs := make([]*transport.Message, n)
	for i := range msgs {
		d := r.next()
		d.ack()
		msgs[i] = d.msg
	}
	return msgs
}

// rest acks and returns what else has come, see sync.
func (r *receiver) rest() []*transport.Message {
	r.e.Helper()
	r.sync()
	var msgs []*transport.Message
	for d := r.poll(); d != nil; d = r.poll() {
		d.ack()
		msgs = append(msgs, d.msg)
	}
	return msgs
}

// stop ends the receiver and checks how it ends.
func (r *receiver) stop() {
	r.e.Helper()
	r.stopf()
	if !r.e.closed(r.done) {
		r.e.Errorf("receive of group %q did not return within %v after its context had ended", r.src.Group, r.e.wait)
		return
	}
	if r.err != nil {
		r.e.Errorf("receive of group %q returned %v after its context had ended; nil was due", r.src.Group, r.err)
	}
}

// ack answers; the delivery leaves the count first, so that the count is never
// higher than what the transport knows to be unanswered.
func (d *delivery) ack() {
	d.answered()
	if err := d.Ack(); err != nil {
		d.r.e.Errorf("ack: %v", err)
	}
}

func (d *delivery) nack(after time.Duration) {
	d.answered()
	if err := d.Nack(after); err != nil {
		d.r.e.Errorf("nack: %v", err)
	}
}

func (d *delivery) answered() {
	d.r.mu.Lock()
	defer d.r.mu.Unlock()
	if d.life == d.r.lives {
		d.r.inHand--
	}
}
