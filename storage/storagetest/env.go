package storagetest

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
)

// coarse is how far a database's clock may be behind: it may tick in
// milliseconds.
const coarse = 5 * time.Millisecond

// longLease is that of members that live as long as a case.
const longLease = 10 * time.Minute

// env is what a case works with.
type env struct {
	testing.TB
	store   storage.Storage
	version string
	cfg     config
}

func newEnv(tb testing.TB, store storage.Storage, cfg config) *env {
	tb.Helper()
	id := ids.New()
	return &env{TB: tb, store: store, version: "t" + hex.EncodeToString(id[8:]), cfg: cfg}
}

// other returns an environment of another version in the same storage.
func (e *env) other() *env { return newEnv(e.TB, e.store, e.cfg) }

// op returns a context for one call, or for one transaction.
func (e *env) op() context.Context {
	ctx, cancel := context.WithTimeout(e.Context(), e.cfg.patience)
	e.Cleanup(cancel)
	return ctx
}

// must ends the case when err is not nil.
func (e *env) must(err error, format string, args ...any) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// eventually polls until f reports true.
func (e *env) eventually(what string, f func() bool) {
	e.Helper()
	deadline := time.NewTimer(e.cfg.patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-deadline.C:
			e.Fatalf("not within %v: %s", e.cfg.patience, what)
		}
	}
}

// together runs f n times at once and waits. f must not end the test.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-begin
			f(i)
		})
	}
	close(begin)
	wg.Wait()
}

// join enters a member that lives as long as the case.
func (e *env) join(box storage.Box) storage.Member {
	e.Helper()
	return e.joinFor(box, longLease)
}

// mortal enters a member that is dead soon unless it beats.
func (e *env) mortal(box storage.Box) storage.Member {
	e.Helper()
	return e.joinFor(box, e.cfg.lease)
}

func (e *env) joinFor(box storage.Box, lease time.Duration) storage.Member {
	e.Helper()
	m, err := e.store.Join(e.op(), storage.Instance{Box: box, Version: e.version, Lease: lease})
	e.must(err, "join")
	return m
}

func (e *env) leave(m storage.Member) {
	e.Helper()
	e.must(m.Leave(e.op()), "leave")
}

func (e *env) begin() storage.Tx {
	e.Helper()
	ctx := e.op()
	tx, err := e.store.Begin(ctx)
	e.must(err, "begin")
	e.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// allOf asks for up to 10,000 rows of a lane.
func allOf(group, subscriber string) storage.Query {
	return storage.Query{Lanes: []storage.Lane{{Group: group, Subscriber: subscriber, Limit: 10_000}}}
}

func byID(recs ...*storage.Record) storage.Query { return storage.Query{IDs: idsOf(recs)} }

func (e *env) look(m storage.Member, q storage.Query) ([]*storage.Record, time.Duration) {
	e.Helper()
	recs, next, err := m.Due(e.op(), q)
	e.must(err, "due")
	return recs, next
}

func (e *env) due(m storage.Member, q storage.Query) []*storage.Record {
	e.Helper()
	recs, _ := e.look(m, q)
	return recs
}

// row reads a row of the member by its id, due or not; nil: there is none.
func (e *env) row(m storage.Member, rec *storage.Record) *storage.Record {
	e.Helper()
	recs := e.due(m, byID(rec))
	if len(recs) == 0 {
		return nil
	}
	return recs[0]
}

// mustRow is as row, but there must be one.
func (e *env) mustRow(m storage.Member, rec *storage.Record) *storage.Record {
	e.Helper()
	r := e.row(m, rec)
	if r == nil {
		e.Fatalf("row %v is not the member's, or has nothing to do", rec.ID)
	}
	return r
}

func (e *env) takeOver(m storage.Member, q storage.Query) []*storage.Record {
	e.Helper()
	recs, err := m.TakeOver(e.op(), q)
	e.must(err, "take over")
	return recs
}

// inherit waits until the member has taken over all the rows of others, and
// returns them in the order of recs.
func (e *env) inherit(m storage.Member, recs ...*storage.Record) []*storage.Record {
	e.Helper()
	got := map[storage.ID]*storage.Record{}
	e.eventually("rows without a living owner are taken over", func() bool {
		for _, rec := range e.takeOver(m, byID(recs...)) {
			got[rec.ID] = rec
		}
		return len(got) >= len(recs)
	})
	out := make([]*storage.Record, len(recs))
	for i, rec := range recs {
		if out[i] = got[rec.ID]; out[i] == nil {
			e.Fatalf("taken over were rows that nobody asked for")
		}
	}
	return out
}

// orphan returns an outbox row, now the heir's, whose owner has died.
func (e *env) orphan(heir storage.Member) *storage.Record {
	e.Helper()
	return e.inherit(heir, e.published(e.mortal(storage.Outbox)))[0]
}

func (e *env) claim(m storage.Member, recs ...*storage.Record) []*storage.Record {
	e.Helper()
	claimed, err := m.Claim(e.op(), recs...)
	e.must(err, "claim")
	return claimed
}

func (e *env) settle(m storage.Member, outcomes ...storage.Outcome) (lost []storage.ID) {
	e.Helper()
	lost, err := m.Settle(e.op(), outcomes...)
	e.must(err, "settle")
	return lost
}

// mustSettle is as settle, but nothing may be lost.
func (e *env) mustSettle(m storage.Member, outcomes ...storage.Outcome) {
	e.Helper()
	if lost := e.settle(m, outcomes...); len(lost) != 0 {
		e.Fatalf("settle reports %v as lost", lost)
	}
}

func (e *env) purge(box storage.Box, limit int) int {
	e.Helper()
	n, err := e.store.Purge(e.op(), storage.Purge{Box: box, Version: e.version, Limit: limit})
	e.must(err, "purge")
	return n
}
