package rabbitmq

import (
	"context"
	"errors"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// writeGrace is what a write that hangs gets when its Send must end.
const writeGrace = 250 * time.Millisecond

// lane is a channel in confirm mode. One Send has it at a time; a lane on which
// anything went wrong is thrown away.
type lane struct {
	conn    *conn
	ch      *amqp091.Channel
	returns chan amqp091.Return
	closes  chan *amqp091.Error
	broken  bool // has confirmations outstanding, or is closed
	lost    bool // a write has failed
}

// openLane opens one that can hold a window of messages.
func openLane(ctx context.Context, c *conn, window int) (*lane, error) {
	l := &lane{conn: c}
	err := c.do(ctx, func() (err error) {
		if l.ch, err = c.Channel(); err != nil {
			return err
		}
		// A return that nobody reads would stop the connection, so there is
		// room for all; so many messages are under way at most.
		l.returns = l.ch.NotifyReturn(make(chan amqp091.Return, window))
		l.closes = l.ch.NotifyClose(make(chan *amqp091.Error, 1))
		return l.ch.Confirm(false)
	}, func() {
		if l.ch != nil {
			_ = l.ch.Close()
		}
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// run publishes a window and waits for its confirmations. What has no answer
// when it returns is left to the caller: the channel was closed for the
// returned cause.
func (l *lane) run(ctx context.Context, window []*outgoing, timeout time.Duration) (cause *amqp091.Error) {
	l.publish(ctx, window)
	l.await(ctx, window, timeout)
	l.match(window)
	return l.settle(ctx, window)
}

// publish writes the window. A write may hang when the broker has an alarm; when
// ctx ends meanwhile, the connection is cut, so that nobody writes on.
func (l *lane) publish(ctx context.Context, window []*outgoing) {
	written := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(writeGrace)
		defer t.Stop()
		select {
		case <-written:
		case <-t.C:
			l.conn.kill()
		}
	})
	defer stop()
	defer close(written)
	for _, o := range window {
		if ctx.Err() != nil {
			return
		}
		if err := l.conn.blockedErr(); err != nil {
			o.answer(err) // nothing was sent
			continue
		}
		dc, err := l.ch.PublishWithDeferredConfirm(o.exchange, o.key, true, false, o.pub)
		if err != nil {
			// Not the message's fault, which was checked: either the broker has
			// closed the channel, or the connection is gone.
			if !errors.Is(err, amqp091.ErrClosed) {
				l.lost = true
				l.conn.kill()
			}
			return
		}
		o.confirm = dc
	}
}

func (l *lane) await(ctx context.Context, window []*outgoing, timeout time.Duration) {
	t := time.NewTimer(timeout)
	defer t.Stop()
	for _, o := range window {
		if o.confirm == nil {
			continue
		}
		select {
		case <-o.confirm.Done():
			continue
		default:
		}
		select {
		case <-o.confirm.Done():
		case <-ctx.Done():
			return
		case <-t.C:
			return
		}
	}
}

// match finds the messages that were returned. The broker returns a message
// before it confirms it, so whatever belongs to a confirmation is there by now.
func (l *lane) match(window []*outgoing) {
	at := 0 // they come in the order of sending
	for {
		select {
		case r, ok := <-l.returns:
			if !ok {
				l.returns = nil
				return
			}
			for i := range window {
				n := (at + i) % len(window)
				if window[n].is(r) {
					window[n].answer(errReturned(r))
					at = n + 1
					break
				}
			}
		default:
			return
		}
	}
}

// is reports whether r is this message, come back.
func (o *outgoing) is(r amqp091.Return) bool {
	return !o.done && o.confirm != nil && o.pub.MessageId == r.MessageId && o.key == r.RoutingKey && o.exchange == r.Exchange
}

// settle answers what can be answered.
func (l *lane) settle(ctx context.Context, window []*outgoing) (cause *amqp091.Error) {
	var asked bool
	for _, o := range window {
		if o.done {
			continue
		}
		if o.confirm != nil && confirmed(o.confirm) {
			if o.confirm.Acked() {
				o.answer(nil)
				continue
			}
			if !l.ch.IsClosed() {
				o.answer(errNacked())
				continue
			}
		}
		l.broken = true
		if !asked {
			asked, cause = true, l.cause()
		}
		if cause == nil {
			o.answer(l.unanswered(ctx))
		}
	}
	return cause
}

func confirmed(dc *amqp091.DeferredConfirmation) bool {
	select {
	case <-dc.Done():
		return true
	default:
		return false
	}
}

// cause is why the broker closed the channel, and only the channel; else nil.
func (l *lane) cause() *amqp091.Error {
	if l.lost || !l.ch.IsClosed() {
		return nil
	}
	var err *amqp091.Error
	t := time.NewTimer(callTimeout)
	defer t.Stop()
	select {
	case err = <-l.closes: // nil: closed without a cause
	case <-t.C:
	}
	if l.conn.IsClosed() || err == nil || !err.Server {
		return nil
	}
	return err
}

// unanswered says what became of a message without an answer.
func (l *lane) unanswered(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return unavailable(context.Cause(ctx))
	case l.lost || l.conn.IsClosed():
		return unavailable(errors.New("the connection was lost before the broker had confirmed"))
	case l.ch.IsClosed():
		return unavailable(errors.New("the channel was closed before the broker had confirmed"))
	}
	if err := l.conn.blockedErr(); err != nil {
		return err
	}
	return errNotConfirmed
}

// close ends the channel, when it is not closed already.
func (l *lane) close(ctx context.Context) {
	_ = l.conn.do(ctx, l.ch.Close, nil)
}
