package subscribe

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/backoff"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/transport"
)

// session is one call of Receive of a group without an inbox. A transport takes
// answers only until Receive has returned, so a session that is to end starts
// nothing more, and goes on until what runs has its answer.
type session struct {
	g    *group
	life context.Context //nolint:containedctx // a session is a span of time; this is its end
	idle chan struct{}   // has a token when the last delivery is answered

	mu       sync.Mutex
	draining bool
	open     int // deliveries without an answer
}

// errTakenBack is the cause by which a handler's context ends when its message
// is not this receiver's any more.
var errTakenBack = errors.New("the receiver was lost: the broker delivers the message again")

// drainWait is how long what arrives while a session ends is kept, so that it
// does not circle.
const drainWait = time.Second

// receiveDirect is as receive, for a group without an inbox. It starts nothing
// once take has ended; answers are waited for until last ends.
func (g *group) receiveDirect(take, last context.Context) {
	wait := backoff.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
	for {
		_, cancel, ok := g.untilPaused(take)
		if !ok {
			return
		}
		cancel()
		if take.Err() != nil {
			return
		}
		begun := time.Now()
		if err := g.receiveSession(take, last); err != nil && take.Err() == nil {
			g.interrupted(take, &wait, begun, err)
		}
	}
}

// receiveSession returns nil when the session has ended as it should.
func (g *group) receiveSession(take, last context.Context) error {
	root := context.WithoutCancel(take)
	life, die := context.WithCancelCause(root)
	receive, stop := context.WithCancel(root)
	defer stop()
	s := &session{g: g, life: life, idle: make(chan struct{}, 1)}
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(take, last, stop) })
	err := g.receiveOnce(receive, func(ctx context.Context, batch []transport.Delivery) { s.deliver(ctx, batch) })
	die(errTakenBack)
	watching.Wait()
	return err
}

// watch ends the session when the group is paused, or take has ended, and
// nothing waits for an answer any more. A pause that ends before that is over.
func (s *session) watch(take, last context.Context, stop func()) {
	for s.life.Err() == nil {
		paused, changed := s.g.pauseState()
		ended := take.Done()
		if s.drain(paused || take.Err() != nil) {
			s.g.giveBackQueued()
			if take.Err() != nil {
				ended, changed = nil, nil
			}
			if last.Err() != nil || s.unanswered() == 0 {
				stop()
				return
			}
		}
		select {
		case <-s.idle:
		case <-changed:
		case <-ended:
		case <-last.Done():
		case <-s.life.Done():
		}
	}
}

// deliver hands a batch to the workers. The window of the source bounds what
// waits for them.
func (s *session) deliver(ctx context.Context, batch []transport.Delivery) {
	s.g.received()
	for _, d := range batch {
		r, ok := d.(transport.Retrier)
		if !ok {
			s.g.c.cfg.Log.Warn(ctx, "the transport does not retry, though its traits say so", s.g.name, slog.String("group", s.g.name))
			_ = d.Nack(drainWait)
			continue
		}
		if !s.begin() {
			_ = d.Nack(drainWait)
			continue
		}
		s.g.admitDirect(&direct{Retrier: r, s: s})
	}
	if s.drains() { // it began to after the deliveries had been let in
		s.g.giveBackQueued()
	}
}

// admitDirect puts a delivery into the line of its subscription.
func (g *group) admitDirect(d *direct) {
	m := d.Message()
	base := g.record(m)
	rt := g.nobody
	for _, r := range g.routes {
		if base.Fault == "" && transport.Match(r.topic, base.Topic) {
			rt = r
		}
	}
	rec := rt.record(base, "")
	rec.Retries = d.Attempt() - 1
	g.queue.Add(rt, &rows.Row{Record: rec, Note: d})
}

// giveBackQueued gives back what waits for a worker.
func (g *group) giveBackQueued() {
	for _, r := range g.queue.Empty() {
		g.giveBack(r)
	}
}

// giveBack gives back what was not worked on.
func (g *group) giveBack(r *rows.Row) {
	if d, ok := r.Note.(*direct); ok {
		d.giveBack()
		return
	}
	g.c.desk.GiveBack(r)
}

// begin counts a delivery, unless the session starts nothing more.
func (s *session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.open++
	s.g.direct.Add(1)
	return true
}

// answered is called once for each delivery that was counted.
func (s *session) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.g.direct.Add(-1)
	if s.open--; s.open == 0 {
		signal(s.idle)
	}
}

func (s *session) unanswered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

func (s *session) drain(draining bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = draining
	return draining
}

func (s *session) drains() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}
