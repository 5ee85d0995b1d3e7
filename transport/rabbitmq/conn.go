package rabbitmq

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/internal/backoff"
)

const (
	// callTimeout bounds one request to the broker that is not a publishing.
	callTimeout = 15 * time.Second
	// writeTimeout bounds one write to the socket. A broker with an alarm does
	// not read; by then it has said that it is blocked.
	writeTimeout = 20 * time.Second
	// stopGrace is what a request that is under way gets when its caller leaves.
	stopGrace = time.Second
	// closeTimeout bounds the closing of a connection.
	closeTimeout = 3 * time.Second
)

// conn is one connection. It is never repaired: when it is lost, its link makes
// another.
type conn struct {
	*amqp091.Connection

	raw     net.Conn
	blocked atomic.Pointer[string] // the broker's reason; nil: it takes messages
	// done is closed when the connection is and its watcher has finished.
	done chan struct{}

	abandoned atomic.Int64 // requests

	mu       sync.Mutex
	closing  bool           // no request begins
	requests sync.WaitGroup // begun under mu
}

// rawConn bounds each write.
type rawConn struct{ net.Conn }

func (c rawConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// dial connects to one host; ctx ends it at any moment.
func dial(ctx context.Context, c Config, host, name string) (*conn, error) {
	address, err := url.Parse(c.URL)
	if err != nil {
		return nil, errURL // err quotes it, password included
	}
	address.Host = host
	co := &conn{done: make(chan struct{})}
	cfg := c.settings(name)
	connect := cfg.Dial
	if connect == nil {
		connect = func(network, addr string) (net.Conn, error) {
			d := net.Dialer{Timeout: c.DialTimeout}
			return d.DialContext(ctx, network, addr)
		}
	}
	stop := func() bool { return true }
	cfg.Dial = func(network, addr string) (net.Conn, error) {
		nc, err := connect(network, addr)
		if err != nil {
			return nil, err
		}
		co.raw = rawConn{nc}
		stop = context.AfterFunc(ctx, func() { _ = nc.Close() })
		return co.raw, nc.SetDeadline(time.Now().Add(c.DialTimeout)) // of the handshake
	}
	co.Connection, err = amqp091.DialConfig(address.String(), cfg)
	if !stop() && err == nil { // ctx has ended meanwhile
		_ = co.CloseDeadline(time.Now())
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	go co.watch(co.NotifyBlocked(make(chan amqp091.Blocking, 4)))
	return co, nil
}

// settings are those of the user, completed.
func (c Config) settings(name string) amqp091.Config {
	cfg := amqp091.Config{}
	if raw := c.AMQP.Connection.AmqpConfig; raw != nil {
		cfg = *raw
	}
	cfg.Recovery = nil // a recovered channel publishes before it confirms
	if cfg.FrameSize == 0 {
		cfg.FrameSize = amqp091.FrameSizeUnlimited // as large as the broker lets others send
	}
	if c.TLS != nil {
		cfg.TLSClientConfig = c.TLS
	}
	if cfg.TLSClientConfig != nil {
		cfg.TLSClientConfig = cfg.TLSClientConfig.Clone() // amqp091 writes the host into it
	}
	props := amqp091.Table{}
	maps.Copy(props, cfg.Properties)
	if props["connection_name"] == nil {
		props["connection_name"] = "gocap " + name
	}
	cfg.Properties = props
	return cfg
}

// watch keeps what the broker says of being blocked; it ends with the connection.
func (c *conn) watch(blocks <-chan amqp091.Blocking) {
	defer close(c.done)
	for b := range blocks {
		if b.Active {
			c.blocked.Store(&b.Reason)
		} else {
			c.blocked.Store(nil)
		}
	}
}

// blockedErr is nil unless the broker says that it takes no messages.
func (c *conn) blockedErr() error {
	if reason := c.blocked.Load(); reason != nil {
		return errBlocked(*reason)
	}
	return nil
}

// kill ends the connection without asking the broker. Whoever waits for an
// answer gets an error.
func (c *conn) kill() { _ = c.raw.Close() }

// do runs a request that has no bound of its own. When it takes too long, or its
// caller leaves and it does not end soon, do returns without it: one queue that
// hangs must not take the connection from the others. The request then ends when
// the broker answers, or with the connection, and undo (may be nil) puts right
// what it has done; nothing that it writes to may be read after such an error.
func (c *conn) do(ctx context.Context, f func() error, undo func()) error {
	done := make(chan error)
	left := make(chan struct{})
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return unavailable(amqp091.ErrClosed)
	}
	c.requests.Go(func() {
		err := guarded(f)
		select {
		case done <- err:
		case <-left:
			if undo != nil {
				undo()
			}
			c.abandoned.Add(-1)
		}
	})
	c.mu.Unlock()
	limit := time.NewTimer(callTimeout)
	defer limit.Stop()
	cause := errNoAnswer
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		cause = context.Cause(ctx)
		grace := time.NewTimer(stopGrace)
		defer grace.Stop()
		select {
		case err := <-done:
			return err
		case <-grace.C:
		}
	case <-limit.C:
	}
	if c.abandoned.Add(1) > maxAbandoned {
		c.kill() // it is not one queue
	}
	close(left)
	return unavailable(cause)
}

// guarded turns a panic into an error: f may call a TopologyBuilder of the user's,
// and nobody above this goroutine could catch it.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panicked: %v", p)
		}
	}()
	return f()
}

// maxAbandoned bounds the requests of one connection that nobody waits for.
const maxAbandoned = 16

// close says goodbye, or kills the connection if the broker does not listen.
func (c *conn) close() {
	t := time.AfterFunc(closeTimeout, c.kill)
	defer t.Stop()
	_ = c.Close()
	c.kill()
	<-c.done
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.requests.Wait()
}

// pace is the wait between two tries to connect.
func (c Config) pace() backoff.Backoff {
	if r := c.AMQP.Connection.Reconnect; r != nil && r.BackoffInitialInterval > 0 && r.BackoffMaxInterval > 0 {
		return backoff.Backoff{Min: r.BackoffInitialInterval, Max: r.BackoffMaxInterval}
	}
	return backoff.Backoff{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond}
}
