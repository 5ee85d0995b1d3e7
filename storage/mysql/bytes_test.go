package mysql_test

import (
	"testing"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/mysql"
)

// TestRowsBehindMaxBytesAreNotSent: the driver would read every one of them from
// the connection, only to drop it.
func TestRowsBehindMaxBytesAreNotSent(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	s := newStore(t, func(c *mysql.Config) { c.MaxConns = 1 })
	out, in := join(t, s, storage.Outbox), join(t, s, storage.Inbox)
	for i := range 50 {
		sent, received := outgoing(out.Number()), incoming(string(rune('a'+i)))
		sent.Body, received.Body = make([]byte, size), make([]byte, size)
		publish(t, s, sent)
		_, err := in.Accept(t.Context(), received)
		must(t, err)
	}
	for m, q := range map[storage.Member]storage.Query{out: outLane(100), in: inLane(100)} {
		q.MaxBytes = 2 * size
		before := bytesSent(t, s)
		// Headers make the second body exceed the limit.
		if recs := due(t, m, q); len(recs) != 2 {
			t.Errorf("%d rows are due", len(recs))
		}
		if n := bytesSent(t, s) - before; n > 3*size {
			t.Errorf("the server sent %d bytes", n)
		}
	}
}

// bytesSent is how much the server has sent on the only connection.
func bytesSent(tb testing.TB, s *gormstore.Store) int {
	tb.Helper()
	var name string
	var n int
	must(tb, s.DB().Raw("SHOW SESSION STATUS LIKE 'Bytes\\_sent'").Row().Scan(&name, &n))
	return n
}
