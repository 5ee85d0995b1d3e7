package storagetest

import (
	"fmt"
	"time"

	"github.com/capbus/gocap/storage"
)

// What else is done with rows that have a key.

func headsNotByLane(e *env) {
	m, heir := e.join(storage.Outbox), e.join(storage.Outbox)
	recs := e.keyed(2, m, "a")
	plain := e.published(m)
	got, next := e.look(m, allOf("", ""))
	e.wantRows("due by lane", got, plain)
	e.wantNext("of rows without a key", next, -1)
	e.mustSettle(m, storage.Outcome{ID: recs[0].ID, Kind: storage.Postpone, After: time.Hour})
	_, next = e.look(m, allOf("", ""))
	e.wantNext("of rows without a key", next, -1)
	e.leave(m)
	e.wantRows("taken over by lane", e.takeOver(heir, allOf("", "")), plain)
}

func headsByID(e *env) {
	m, other, heir := e.join(storage.Outbox), e.join(storage.Outbox), e.join(storage.Outbox)
	recs := e.keyed(2, m, "a")
	e.keyed(1, other, "b")
	h := e.allHeads(m, "", "")
	e.wantRows("its own", e.due(m, storage.Query{IDs: []storage.ID{h[0].ID, h[1].ID}}), recs[0])
	e.wantRows("of the living", e.takeOver(heir, storage.Query{IDs: []storage.ID{h[0].ID}}))
	e.leave(m)
	e.wantRows("of nobody", e.takeOver(heir, storage.Query{IDs: []storage.ID{h[0].ID}}), recs[0])
	h = e.allHeads(heir, "", "")
	if h[0].ID != recs[0].ID || h[0].Owner != heir.Number() || !h[0].Living {
		e.Errorf("after it was taken over the head is %+v", h[0])
	}
}

func headsOwed(e *env) {
	m, heir := e.join(storage.Outbox), e.join(storage.Outbox)
	recs := e.keyed(2, m, "a")
	e.mustSettle(m, storage.Outcome{ID: recs[0].ID, Kind: storage.Fail, After: time.Hour, Callback: true})
	e.wantHeads("behind the failed one", e.allHeads(m, "", ""), recs[1])
	e.wantRows("whose callback is owed", e.due(m, allOf("", "")), recs[0])
	e.leave(m)
	e.wantRows("whose callback is owed by nobody", e.takeOver(heir, allOf("", "")), recs[0])
	e.mustSettle(heir, storage.Outcome{ID: recs[0].ID, Kind: storage.CallbackDone})
	e.wantRows("when it was made", e.due(heir, allOf("", "")))
}

func headsAccepted(e *env) {
	m := e.join(storage.Inbox)
	recs := e.deliveries(60, "g", "s")
	for i, r := range recs {
		r.MessageID = fmt.Sprintf("%d", 1000-i) // in no order that an index would give
		if i%4 != 3 {
			r.Key = fmt.Sprint("k", i%3)
		}
	}
	e.accept(m, recs[:10]...)
	e.accept(m, recs...) // some are there already
	last := map[string]int64{}
	for _, r := range recs {
		if r.Key == "" {
			continue
		}
		seq := e.mustRow(m, r).Position.Seq
		if seq <= last[r.Key] {
			e.Errorf("a record of key %q has seq %d, the one before it in the call has %d", r.Key, seq, last[r.Key])
		}
		last[r.Key] = seq
	}
}

func headsStale(e *env) {
	dead, serves, heir := e.join(storage.Inbox), e.join(storage.Inbox), e.join(storage.Inbox)
	a, b := e.keyedDelivery("g", "gone", "a"), e.keyedDelivery("g", "gone", "b")
	second, plain := e.keyedDelivery("g", "gone", "a"), e.delivery("g", "gone")
	e.accept(dead, a, b, second, plain)
	served, theirs := e.keyedDelivery("g", "served", "a"), e.keyedDelivery("g", "served", "b")
	e.accept(dead, served)
	e.accept(serves, theirs)
	e.leave(dead)
	q := allOf("g", "")
	q.Stale = time.Hour
	e.wantRows("due for an hour", e.takeOver(heir, q))
	q.Stale = time.Millisecond
	var got []*storage.Record
	e.eventually("rows of the subscription that nobody serves are due for a millisecond", func() bool {
		got = append(got, e.takeOver(heir, q)...)
		return len(got) >= 3
	})
	e.wantSet("the first of each key, and one without", got, a, b, plain)
	e.wantRows("nothing more, while they are unfinished", e.takeOver(heir, q))
	e.mustSettle(heir, storage.Outcome{ID: a.ID, Kind: storage.Fail, After: time.Hour})
	e.wantRows("the next of its key", e.takeOver(heir, q), second)
	e.leave(serves)
	got = nil
	e.eventually("the other subscription has no living owner", func() bool {
		got = append(got, e.takeOver(heir, q)...)
		return len(got) >= 2
	})
	e.wantSet("of the one that nobody serves any more", got, served, theirs)
}
