package rabbitmq

import (
	"context"
	"sync"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// publisher sends over a few lanes of one connection.
type publisher struct {
	cfg  Config
	link *link
	free chan struct{} // a token a lane

	mu       sync.Mutex
	idle     []*lane
	declared map[string]*conn // exchanges, and on which connection
	closed   bool
	closing  sync.WaitGroup // lanes on their way out, begun under mu
}

func newPublisher(cfg Config, l *link) *publisher {
	return &publisher{cfg: cfg, link: l, free: make(chan struct{}, max(1, cfg.Channels)), declared: map[string]*conn{}}
}

// send answers each message that has no answer. After a channel was closed for a
// cause, the messages that it leaves open go again in halves, so that the one at
// fault is found; alone in its window, a message is rejected with the cause.
// Each declares its exchange where that is needed (declare).
func (p *publisher) send(ctx context.Context, all []*outgoing, declare exchanges) {
	var windows [][]*outgoing
	for left := open(all); len(left) > 0; {
		n := min(len(left), p.cfg.Window)
		windows = append(windows, left[:n])
		left = left[n:]
	}
	for len(windows) > 0 {
		w := windows[0]
		windows = windows[1:]
		cause := p.sendWindow(ctx, w, declare)
		left := open(w)
		switch {
		case len(left) == 0:
		case len(w) > 1:
			half := (len(left) + 1) / 2
			windows = append(windows, left[:half])
			if half < len(left) {
				windows = append(windows, left[half:])
			}
		case cause.Code == amqp091.NotFound && !w[0].missing:
			w[0].missing = true // declared again by the next window
			windows = append(windows, w)
		default:
			w[0].answer(rejectedFor(cause))
		}
	}
}

// open are the messages without an answer, made ready to be sent.
func open(all []*outgoing) []*outgoing {
	left := make([]*outgoing, 0, len(all))
	for _, o := range all {
		if !o.done {
			o.confirm = nil
			left = append(left, o)
		}
	}
	return left
}

// sendWindow leaves messages open only for the cause that it returns.
func (p *publisher) sendWindow(ctx context.Context, w []*outgoing, declare exchanges) *amqp091.Error {
	l, err := p.acquire(ctx)
	if err == nil {
		defer func() { p.release(ctx, l) }()
		err = p.declare(ctx, l.conn, w, declare)
	}
	if err != nil {
		for _, o := range w {
			o.answer(unavailable(err))
		}
		return nil
	}
	cause := l.run(ctx, w, p.cfg.ConfirmTimeout)
	if cause != nil && cause.Code == amqp091.NotFound {
		p.forget(w)
	}
	return cause
}

// acquire waits for a lane. It has a living connection that is not blocked.
func (p *publisher) acquire(ctx context.Context) (*lane, error) {
	select {
	case p.free <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	l, err := p.lane(ctx)
	if err != nil {
		<-p.free
	}
	return l, err
}

func (p *publisher) lane(ctx context.Context) (*lane, error) {
	c, err := p.link.get(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.blockedErr(); err != nil {
		return nil, err
	}
	for {
		p.mu.Lock()
		var l *lane
		if n := len(p.idle); n > 0 {
			l, p.idle = p.idle[n-1], p.idle[:n-1]
		}
		p.mu.Unlock()
		switch {
		case l == nil:
			return openLane(ctx, c, p.cfg.Window)
		case l.conn == c && !l.ch.IsClosed():
			return l, nil
		}
	}
}

// release keeps a lane that is as good as new. Another one is closed without
// making the Send wait for it.
func (p *publisher) release(ctx context.Context, l *lane) {
	p.mu.Lock()
	switch {
	case l.ch.IsClosed() || p.closed:
	case l.broken:
		p.closing.Go(func() { l.close(context.WithoutCancel(ctx)) })
	default:
		p.idle = append(p.idle, l)
	}
	p.mu.Unlock()
	<-p.free
}

// exchanges declares one on a channel of its own.
type exchanges func(ctx context.Context, c *conn, name string) error

// declare makes the exchanges of a window, once a connection.
func (p *publisher) declare(ctx context.Context, c *conn, w []*outgoing, declare exchanges) error {
	last := ""
	for _, o := range w {
		if o.exchange == last {
			continue
		}
		last = o.exchange
		p.mu.Lock()
		known := p.declared[o.exchange] == c
		p.mu.Unlock()
		if known {
			continue
		}
		if err := declare(ctx, c, o.exchange); err != nil {
			return err
		}
		p.mu.Lock()
		if len(p.declared) > maxDeclared {
			clear(p.declared)
		}
		p.declared[o.exchange] = c
		p.mu.Unlock()
	}
	return nil
}

// maxDeclared bounds the memory where each topic has an exchange.
const maxDeclared = 10_000

// forget has the exchanges of a window declared again.
func (p *publisher) forget(w []*outgoing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range w {
		delete(p.declared, o.exchange)
	}
}

// check finds out whether a Send would get through.
func (p *publisher) check(ctx context.Context, f func(c *conn) error) error {
	c, err := p.link.get(ctx)
	if err != nil {
		return err
	}
	if err := c.blockedErr(); err != nil {
		return err
	}
	if err := f(c); err != nil {
		return err
	}
	return c.blockedErr()
}

// close waits for what is on its way out. The link is closed before.
func (p *publisher) close() {
	p.mu.Lock()
	p.closed, p.idle = true, nil
	p.mu.Unlock()
	p.closing.Wait()
}
