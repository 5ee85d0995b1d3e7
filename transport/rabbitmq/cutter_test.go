package rabbitmq_test

import (
	"net"
	"sync"
	"testing"
)

// cutter is a way to a broker that can be cut.
type cutter struct {
	l  net.Listener
	to string

	done sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	count int           // of connections that were made
	held  chan struct{} // closed: bytes pass; open: they are kept
}

func newCutter(t *testing.T, to string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{l: l, to: to, conns: map[net.Conn]struct{}{}, held: make(chan struct{})}
	close(c.held)
	c.done.Go(c.accept)
	t.Cleanup(func() {
		_ = l.Close()
		c.cut()
		c.pass()
		c.done.Wait()
	})
	return c
}

func (c *cutter) addr() string { return c.l.Addr().String() }

func (c *cutter) accept() {
	for {
		in, err := c.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", c.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		c.keep(in, out)
		c.done.Go(func() { c.copy(in, out) })
		c.done.Go(func() { c.copy(out, in) })
	}
}

func (c *cutter) keep(conns ...net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, nc := range conns {
		c.conns[nc] = struct{}{}
	}
	c.count++
}

func (c *cutter) made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

func (c *cutter) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		<-c.gate()
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			_ = to.Close()
			_ = from.Close()
			return
		}
	}
}

// cut resets every connection, in the middle of whatever is on it.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for nc := range c.conns {
		if tcp, ok := nc.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = nc.Close()
	}
	clear(c.conns)
}

func (c *cutter) gate() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// hold keeps every byte from now on, as a network that swallows packets does.
func (c *cutter) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = make(chan struct{})
}

// pass lets bytes through again.
func (c *cutter) pass() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.held:
	default:
		close(c.held)
	}
}
