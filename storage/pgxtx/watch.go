package pgxtx

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// dataKey is where a traced connection keeps its state: in itself, so that
// there is no list of connections to be looked after. What is bound in a
// transaction is gone with its connection.
const dataKey = "github.com/capbus/gocap/storage/pgxtx"

// state is what a Tracer knows of a connection.
type state struct {
	open atomic.Pointer[watch] // of the transaction that the connection is in; nil: nobody watches
}

// watch is a transaction whose end somebody wants to know.
type watch struct {
	// several: there may have been statements whose tags were not seen, so that
	// the last one does not tell what became of the transaction.
	several bool
	values  sync.Map

	mu        sync.Mutex
	ended     bool
	committed bool
	funcs     []func(committed bool)
}

// stateOf returns nil for a connection that no Tracer has seen.
func stateOf(conn *pgx.Conn) *state {
	s, _ := conn.PgConn().CustomData()[dataKey].(*state)
	return s
}

// watchOf returns the watch of the transaction that conn is in; nil if its end
// will not be told.
func watchOf(conn *pgx.Conn) *watch {
	s := stateOf(conn)
	if s == nil {
		return nil
	}
	w := s.open.Load()
	if w == nil {
		w = &watch{}
		s.open.Store(w)
	}
	return w
}

// OnEnd implements storage.EndNotifier. f is called by the goroutine that ends
// the transaction, before its Commit or Rollback has returned; at once, if it
// has ended already. committed is false only if it is certain that it was
// rolled back. f is not called if the connection is closed by hand and neither
// its pool nor a further call on it tells of that: then nothing was committed.
func (w *watch) OnEnd(f func(committed bool)) {
	w.mu.Lock()
	done := w.ended
	if !done {
		w.funcs = append(w.funcs, f)
	}
	w.mu.Unlock()
	if done {
		f(w.committed) // not written any more
	}
}

// TxValues implements storage.EndNotifier.
func (w *watch) TxValues() *sync.Map { return &w.values }

func (s *state) end(w *watch, committed bool) {
	s.open.CompareAndSwap(w, nil)
	w.mu.Lock()
	funcs := w.funcs
	if !w.ended {
		w.ended, w.committed, w.funcs = true, committed, nil
	}
	w.mu.Unlock()
	for _, f := range funcs {
		f(committed)
	}
}

// watched returns the watch of the transaction that conn was last known to be
// in; nil for w: there is nothing to do.
func watched(conn *pgx.Conn) (s *state, w *watch) {
	if s = stateOf(conn); s != nil {
		w = s.open.Load()
	}
	return s, w
}

// before is told of a command that is about to be sent.
func before(conn *pgx.Conn, text string) {
	s, w := watched(conn)
	switch {
	case w == nil:
	case conn.PgConn().TxStatus() == idle: // it was ended beside the Tracer, through PgConn
		s.end(w, true)
	case strings.IndexByte(text, ';') >= 0:
		w.several = true
	}
}

// beforeBatch is told of a batch that is about to be sent.
func beforeBatch(conn *pgx.Conn, b *pgx.Batch) {
	if _, w := watched(conn); w == nil {
		return
	}
	for _, q := range b.QueuedQueries {
		before(conn, q.SQL)
	}
}

// afterBatch is told that a batch is over. With an error, answers to parts of
// it may have been left out.
func afterBatch(conn *pgx.Conn, err error) {
	if _, w := watched(conn); w != nil && err != nil {
		w.several = true
	}
	after(conn, pgconn.CommandTag{}, err)
}

// after is told of the answer to a command.
func after(conn *pgx.Conn, tag pgconn.CommandTag, err error) {
	s, w := watched(conn)
	pg := conn.PgConn()
	switch {
	case s == nil:
		if data := pg.CustomData(); data != nil {
			data[dataKey] = &state{}
		}
	case w == nil:
	case pg.IsClosed(), tag.String() == "COMMIT": // the latter may have begun the next, with AND CHAIN
		s.end(w, true)
	case pg.TxStatus() == idle:
		s.end(w, err != nil || w.several || tag.String() != "ROLLBACK")
	}
}

// released is told that a pool gets conn back. One that is in a transaction is
// closed by the pool, which rolls back.
func released(conn *pgx.Conn) {
	if s, w := watched(conn); w != nil {
		pg := conn.PgConn()
		s.end(w, pg.IsClosed() || pg.IsBusy() || pg.TxStatus() == idle)
	}
}
