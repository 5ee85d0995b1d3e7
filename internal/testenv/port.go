package testenv

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreePort returns a port of 127.0.0.1 on which nothing listens.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, err := freePort()
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// freePort takes none of the ports that systems give to outgoing connections
// (32768 and up on Linux): a client that knocks at a server which restarts could
// get the server's own port.
func freePort() (int, error) {
	for range 100 {
		port := 20000 + rand.IntN(12000) //nolint:gosec // a secret is not wanted
		l, err := net.Listen("tcp", loopback(port))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("testenv: found no free port between 20000 and 32000")
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
