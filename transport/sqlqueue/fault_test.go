package sqlqueue_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/sqlqueue"
)

// hole is a way to a server that can swallow everything, as a network does that
// drops packets.
type hole struct {
	listener net.Listener
	conns    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	all    []net.Conn
	gate   chan struct{} // closed: bytes pass
}

func newHole(t *testing.T, to string) *hole {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	h := &hole{listener: l, gate: make(chan struct{})}
	close(h.gate)
	h.conns.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			h.keep(in, out)
			h.conns.Go(func() { h.copy(in, out) })
			h.conns.Go(func() { h.copy(out, in) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		h.open()
		h.mu.Lock()
		h.closed = true
		for _, c := range h.all {
			_ = c.Close()
		}
		h.mu.Unlock()
		h.conns.Wait()
	})
	return h
}

func (h *hole) keep(conns ...net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, conns...)
	if h.closed {
		for _, c := range conns {
			_ = c.Close()
		}
	}
}

func (h *hole) copy(to io.WriteCloser, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		h.mu.Lock()
		gate := h.gate
		h.mu.Unlock()
		<-gate
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			_ = to.Close()
			return
		}
	}
}

// swallow keeps every byte from now on.
func (h *hole) swallow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gate = make(chan struct{})
}

func (h *hole) open() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.gate:
	default:
		close(h.gate)
	}
}

// TestADatabaseThatDoesNotAnswer: every wait ends, with an error that says so.
func TestADatabaseThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	direct := newDatabase(t)
	u, err := url.Parse(direct)
	must(t, err)
	h := newHole(t, u.Host)
	u.Host = h.listener.Addr().String()
	tr := open(t, sqlqueue.Config{DSN: u.String(), RequestTimeout: limit, Lease: lease})
	declare(t, tr, "g")
	in := receive(t, tr, source("g", 10))
	send(t, tr, messages("m", "a.b", 10)...)
	in.ids(10)

	h.swallow()
	began := time.Now()
	for name, err := range map[string]error{
		"send":    tr.Send(t.Context(), messages("n", "a.b", 1))[0],
		"check":   tr.Check(t.Context()),
		"declare": tr.Declare(t.Context(), source("new", 1)),
		"receive": in.lost(),
	} {
		if !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if took := time.Since(began); took > 5*limit+lease+slack {
		t.Errorf("four waits of at most %v took %v", limit, took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tr.Send(ctx, messages("n", "a.b", 1))[0]; !errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("send with a context that has ended: %v", err)
	}

	h.open()
	eventually(t, "a message is sent", func() bool { return tr.Send(t.Context(), messages("p", "a.b", 1))[0] == nil })
	in.next()
	h.swallow()
	began = time.Now()
	must(t, tr.Close())
	if took := time.Since(began); took > 5*time.Second+slack {
		t.Errorf("close took %v", took)
	}
	if err := tr.Check(t.Context()); !errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("after close: %v", err)
	}
}

// TestADatabaseThatIsAway delays a start.
func TestADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	tr := open(t, sqlqueue.Config{DSN: "postgres://nobody@127.0.0.1:1/none", RequestTimeout: time.Second})
	for name, err := range map[string]error{
		"send":    tr.Send(t.Context(), messages("n", "a.b", 1))[0],
		"check":   tr.Check(t.Context()),
		"declare": tr.Declare(t.Context(), source("g", 1)),
		"receive": tr.Receive(t.Context(), source("g", 1), nil),
	} {
		if !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
