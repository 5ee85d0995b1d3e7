package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/backoff"
)

// link keeps one connection: who needs it gets the living one, or makes it,
// together with all who ask meanwhile. Nothing runs while nobody asks.
type link struct {
	cfg  Config
	name string // for what it is used

	mu     sync.Mutex
	cur    *conn
	trying *dialing
	next   time.Time // not before then
	wait   backoff.Backoff
	host   int // index of the one to try first
	closed bool
}

// dialing is one try to connect, of all hosts in turn.
type dialing struct {
	cancel context.CancelFunc
	done   chan struct{}
	conn   *conn
	err    error
}

func newLink(cfg Config, name string) *link {
	return &link{cfg: cfg, name: name, wait: cfg.pace()}
}

// get returns a living connection. After a try that failed, the next one waits
// for a moment, at most 500 ms.
func (l *link) get(ctx context.Context) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, unavailable(context.Cause(ctx))
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, errClosed
	}
	if l.cur != nil && !l.cur.IsClosed() {
		defer l.mu.Unlock()
		return l.cur, nil
	}
	d := l.trying
	if d == nil {
		d = l.tryLocked(ctx)
	}
	l.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, unavailable(context.Cause(ctx))
	}
}

// tryLocked starts a try that outlives its caller: others may wait for it.
func (l *link) tryLocked(ctx context.Context) *dialing {
	dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.cfg.DialTimeout*time.Duration(len(l.cfg.hosts()))+time.Second)
	d := &dialing{cancel: cancel, done: make(chan struct{})}
	l.trying = d
	old, at, first := l.cur, l.next, l.host
	l.cur = nil
	go func() {
		defer close(d.done)
		defer cancel()
		if old != nil {
			old.close()
		}
		if backoff.Sleep(dctx, time.Until(at)) {
			d.conn, d.err = l.dialAny(dctx, first)
		} else {
			d.err = context.Cause(dctx)
		}
		l.tried(d)
	}()
	return d
}

func (l *link) dialAny(ctx context.Context, first int) (*conn, error) {
	hosts := l.cfg.hosts()
	if len(hosts) == 0 {
		return nil, errURL
	}
	var errs []error
	for i := range hosts {
		host := hosts[(first+i)%len(hosts)]
		c, err := dial(ctx, l.cfg, host, l.name)
		if err == nil {
			return c, nil
		}
		errs = append(errs, fmt.Errorf("connect to %s: %w", host, err))
	}
	return nil, errors.Join(errs...)
}

// tried keeps the outcome of a try.
func (l *link) tried(d *dialing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trying = nil
	switch {
	case d.err != nil:
		d.err = unavailable(d.err)
		l.next = time.Now().Add(l.wait.Next())
		l.host++
	case l.closed:
		d.conn.kill()
		l.cur = d.conn
	default:
		l.cur = d.conn
		l.wait.Reset()
		l.next = time.Now().Add(l.wait.Next()) // a broker that hangs up at once is not besieged
	}
}

// close ends the connection, and what is being tried.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	d := l.trying
	if d != nil {
		d.cancel()
	}
	l.mu.Unlock()
	if d != nil {
		<-d.done
	}
	l.mu.Lock()
	cur := l.cur
	l.cur = nil
	l.mu.Unlock()
	if cur != nil {
		cur.close()
	}
}
