package storagetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
)

// message returns a record for the outbox.
func (e *env) message(owner storage.Member) *storage.Record {
	rec := &storage.Record{ID: ids.New(), Version: e.version, Topic: "orders.created", Headers: []byte(`{"h":"v"}`), Body: []byte(`{"n":1}`)}
	if owner != nil {
		rec.Owner = owner.Number()
	}
	return rec
}

func (e *env) messages(n int, owner storage.Member) []*storage.Record {
	recs := make([]*storage.Record, n)
	for i := range recs {
		recs[i] = e.message(owner)
		recs[i].Body = fmt.Appendf(nil, `{"n":%d}`, i)
	}
	return recs
}

// publish commits records in a transaction of their own.
func (e *env) publish(recs ...*storage.Record) {
	e.Helper()
	tx := e.begin()
	e.must(tx.Append(e.op(), recs...), "append")
	e.must(tx.Commit(), "commit")
}

// published commits one record and returns it.
func (e *env) published(owner storage.Member) *storage.Record {
	e.Helper()
	rec := e.message(owner)
	e.publish(rec)
	return rec
}

// delivery returns a record for the inbox, of a message of its own.
func (e *env) delivery(group, subscriber string) *storage.Record {
	id := storage.ID(ids.New())
	return &storage.Record{
		ID: id, Version: e.version, Topic: "orders.created", Group: group, Subscriber: subscriber,
		MessageID: id.String(), Headers: []byte(`{"h":"v"}`), Body: []byte(`{"n":1}`),
	}
}

func (e *env) deliveries(n int, group, subscriber string) []*storage.Record {
	recs := make([]*storage.Record, n)
	for i := range recs {
		recs[i] = e.delivery(group, subscriber)
	}
	return recs
}

// again returns the same message once more, as a redelivery brings it.
func again(rec *storage.Record) *storage.Record {
	c := *rec
	c.ID = ids.New()
	return &c
}

func (e *env) accept(m storage.Member, recs ...*storage.Record) []*storage.Record {
	e.Helper()
	fresh, err := m.Accept(e.op(), recs...)
	e.must(err, "accept")
	return fresh
}

// accepted accepts one record of lane g, s and returns it.
func (e *env) accepted(m storage.Member) *storage.Record {
	e.Helper()
	rec := e.delivery("g", "s")
	e.accept(m, rec)
	return rec
}

func succeed(rec *storage.Record) storage.Outcome {
	return storage.Outcome{ID: rec.ID, Kind: storage.Succeed, After: time.Hour}
}

func idsOf(recs []*storage.Record) []storage.ID {
	out := make([]storage.ID, len(recs))
	for i, rec := range recs {
		out[i] = rec.ID
	}
	return out
}

// wantRows compares rows, in this order, and reports whether they are the same.
func (e *env) wantRows(what string, got []*storage.Record, want ...*storage.Record) bool {
	e.Helper()
	g, w := idsOf(got), idsOf(want)
	if !slices.Equal(g, w) {
		e.Errorf("%s: got %s, want %s", what, list(g), list(w))
		return false
	}
	return true
}

// mustRows is as wantRows, and ends the case when they are not the same.
func (e *env) mustRows(what string, got []*storage.Record, want ...*storage.Record) {
	e.Helper()
	if !e.wantRows(what, got, want...) {
		e.FailNow()
	}
}

// wantSet compares rows, in any order.
func (e *env) wantSet(what string, got []*storage.Record, want ...*storage.Record) {
	e.Helper()
	e.wantIDs(what, idsOf(got), idsOf(want)...)
}

func (e *env) wantIDs(what string, got []storage.ID, want ...storage.ID) {
	e.Helper()
	byValue := func(a, b storage.ID) int { return slices.Compare(a[:], b[:]) }
	g, w := slices.SortedFunc(slices.Values(got), byValue), slices.SortedFunc(slices.Values(want), byValue)
	if !slices.Equal(g, w) {
		e.Errorf("%s: got %s, want %s", what, list(g), list(w))
	}
}

func list(ids []storage.ID) string {
	const most = 6
	var b strings.Builder
	fmt.Fprintf(&b, "%d rows [", len(ids))
	for i, id := range ids {
		if i == most {
			b.WriteString(" …")
			break
		}
		fmt.Fprintf(&b, " %x", id[10:])
	}
	return b.String() + " ]"
}
