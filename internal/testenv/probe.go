package testenv

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// probeTimeout is for one look at a server.
const probeTimeout = 5 * time.Second

// dial connects to a server for a few messages; ctx and probeTimeout end them.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: probeTimeout}
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(probeTimeout)
	if ctxEnd, ok := ctx.Deadline(); ok && ctxEnd.Before(end) {
		end = ctxEnd
	}
	return conn, conn.SetDeadline(end)
}

// maxMessage bounds what we read at once: some other server may be listening.
const maxMessage = 1 << 20

func readN(r io.Reader, n int) ([]byte, error) {
	if n < 0 || n > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes; some other protocol", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// A reader takes a message apart. What is not there reads as zero.
type reader []byte

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(*r) {
		n = len(*r)
	}
	b := (*r)[:n]
	*r = (*r)[n:]
	return b
}

// text reads up to a zero byte.
func (r *reader) text() string {
	for i, b := range *r {
		if b == 0 {
			s := string((*r)[:i])
			*r = (*r)[i+1:]
			return s
		}
	}
	return string(r.take(len(*r)))
}

func (r *reader) byte() byte {
	if b := r.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}
