package integration

import (
	"bytes"
	"net"
	"strconv"
	"sync"
	"testing"
)

// A connection through the proxy is cut at its commit when a statement with one
// of these comments has passed before.
const (
	cutBefore = "SELECT 1 /* cut before */" // the server never gets the COMMIT
	cutAfter  = "SELECT 1 /* cut after */"  // its answer does not arrive
)

// proxied returns an address at which the server is reached.
func proxied(tb testing.TB, host string, port uint16) (string, uint16) {
	tb.Helper()
	target := net.JoinHostPort(host, strconv.Itoa(int(port)))
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // the test ends it
	must(tb, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { relay(client, target) })
		}
	})
	tb.Cleanup(func() {
		must(tb, l.Close())
		all.Wait() // the pools are closed before
	})
	addr, _ := l.Addr().(*net.TCPAddr)
	return "127.0.0.1", addr.AddrPort().Port()
}

// relay passes on what both sides say.
func relay(client net.Conn, target string) {
	defer client.Close()                   //nolint:errcheck // it only ends it
	server, err := net.Dial("tcp", target) //nolint:noctx // as the client
	if err != nil {
		return
	}
	var answers sync.WaitGroup
	defer answers.Wait()
	defer server.Close() //nolint:errcheck // as above
	mute := make(chan struct{})
	answers.Go(func() { answer(client, server, mute) })
	var cut string
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		said := buf[:n]
		switch {
		case bytes.Contains(said, []byte("cut before")):
			cut = cutBefore
		case bytes.Contains(said, []byte("cut after")):
			cut = cutAfter
		case cut != "" && bytes.Contains(bytes.ToLower(said), []byte("commit")):
			if cut == cutAfter {
				close(mute)
				_, _ = server.Write(said)
				answers.Wait() // until the server has answered
			}
			return
		}
		if _, werr := server.Write(said); err != nil || werr != nil {
			return
		}
	}
}

// answer passes on what the server says. When mute is closed it ends with the
// next that the server says, and keeps that to itself.
func answer(client, server net.Conn, mute <-chan struct{}) {
	defer client.Close() //nolint:errcheck // as above
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		select {
		case <-mute:
			return
		default:
		}
		if _, werr := client.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}
