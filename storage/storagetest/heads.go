package storagetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capbus/gocap/storage"
)

func headCases() []testCase {
	const first = "Heads reads, of each key of a lane, the first unfinished row: of all rows with that key, whoever owns them, the one with the smallest seq that is not final."
	const lanes = "By lanes, unfinished rows with a key are left out."
	return []testCase{
		{"heads/first", first, headsFirst},
		{"heads/whoever-owns", first, headsOfOthers},
		{"heads/unfinished", "A key without unfinished rows has none.", headsUnfinished},
		{"heads/failed-again", first, headsRetried},
		{"heads/fields", "Head: Owner, Living: the owner has a heartbeat that has not ended; DueIn; Bytes.", headsFields},
		{"heads/lanes", "Group and Subscriber are the lane; version isolates services that share tables.", headsLanes},
		{"heads/pages", "A page has the keys behind After in the order of their bytes, at most Limit. Fewer than Limit heads: it was the last.", headsPages},
		{"heads/keys", "Keys asks for just these.", headsKeys},
		{"heads/bytes-of-keys", "Keys are compared as bytes; at most 255 of them.", headsBytes},
		{"heads/not-by-lane", lanes, headsNotByLane},
		{"heads/by-id", "To work on a head, load it: by Due(IDs) when the asking member owns it, by TakeOver(IDs) when nobody who lives does.", headsByID},
		{"heads/owed-callback", "unfinished rows with a key are left out: one that is final and owes its callback is found by its lane.", headsOwed},
		{"heads/order-of-accept", "Records of one lane with a key get their seq in the order given.", headsAccepted},
		{"heads/stale", "Stale: of the rows with a key, the first unfinished one of each key is taken.", headsStale},
	}
}

// keyed returns n outbox records of a key, committed one after another.
func (e *env) keyed(n int, owner storage.Member, key string) []*storage.Record {
	e.Helper()
	recs := e.messages(n, owner)
	for _, r := range recs {
		r.Key = key
		e.publish(r)
	}
	return recs
}

// keyedDelivery is as delivery, with a key.
func (e *env) keyedDelivery(group, subscriber, key string) *storage.Record {
	rec := e.delivery(group, subscriber)
	rec.Key = key
	return rec
}

func (e *env) heads(m storage.Member, q storage.HeadQuery) []storage.Head {
	e.Helper()
	heads, err := m.Heads(e.op(), q)
	e.must(err, "heads")
	return heads
}

// allHeads is the first page of a lane.
func (e *env) allHeads(m storage.Member, group, subscriber string) []storage.Head {
	e.Helper()
	return e.heads(m, storage.HeadQuery{Group: group, Subscriber: subscriber, Limit: 1000})
}

// wantHeads compares heads, in the order of their keys.
func (e *env) wantHeads(what string, got []storage.Head, want ...*storage.Record) {
	e.Helper()
	text := func(key string, id storage.ID) string { return fmt.Sprintf("%.20q %x", key, id[10:]) }
	var g, w []string
	for _, h := range got {
		g = append(g, text(h.Key, h.ID))
	}
	for _, r := range want {
		w = append(w, text(r.Key, r.ID))
	}
	if !slices.Equal(g, w) {
		e.Errorf("%s: got %s, want %s", what, strings.Join(g, ", "), strings.Join(w, ", "))
	}
}

func headsFirst(e *env) {
	m := e.join(storage.Outbox)
	a, b := e.keyed(3, m, "a"), e.keyed(2, m, "b")
	e.published(m) // without a key
	e.wantHeads("at first", e.allHeads(m, "", ""), a[0], b[0])
	e.wantHeads("looked at again", e.allHeads(m, "", ""), a[0], b[0])
	e.mustSettle(m, succeed(a[0]))
	e.wantHeads("after the first of a", e.allHeads(m, "", ""), a[1], b[0])
	e.mustSettle(m, storage.Outcome{ID: b[0].ID, Kind: storage.Fail, After: time.Hour})
	e.wantHeads("after the first of b has failed for good", e.allHeads(m, "", ""), a[1], b[1])
	e.mustSettle(m, succeed(a[2]))
	e.wantHeads("after one out of order", e.allHeads(m, "", ""), a[1], b[1])
}

func headsOfOthers(e *env) {
	m, other := e.join(storage.Outbox), e.join(storage.Outbox)
	theirs := e.keyed(1, other, "a")[0]
	mine := e.keyed(1, m, "a")[0]
	free := e.keyed(1, nil, "b")[0]
	e.keyed(1, m, "b")
	e.wantHeads("first the other's, and nobody's", e.allHeads(m, "", ""), theirs, free)
	e.mustSettle(other, succeed(theirs))
	e.wantHeads("then its own", e.allHeads(m, "", ""), mine, free)
}

func headsUnfinished(e *env) {
	m := e.join(storage.Outbox)
	e.wantHeads("in an empty storage", e.allHeads(m, "", ""))
	rec := e.keyed(1, m, "a")[0]
	e.mustSettle(m, succeed(rec))
	e.wantHeads("of a key without unfinished rows", e.allHeads(m, "", ""))
	e.wantHeads("asked for", e.heads(m, storage.HeadQuery{Keys: []string{"a", "never"}}))
	gone := e.keyed(1, m, "a")[0]
	e.mustSettle(m, storage.Outcome{ID: gone.ID, Kind: storage.Succeed, After: -1})
	e.wantHeads("after it was deleted", e.allHeads(m, "", ""))
}

func headsRetried(e *env) {
	m := e.join(storage.Outbox)
	recs := e.keyed(2, m, "a")
	for _, kind := range []storage.OutcomeKind{storage.Retry, storage.Postpone, storage.Release} {
		e.mustSettle(m, storage.Outcome{ID: recs[0].ID, Kind: kind, Attempt: 1, After: time.Hour, Error: "no"})
		e.wantHeads("one that failed, or waits, stays the first", e.allHeads(m, "", ""), recs[0])
	}
	if h := e.allHeads(m, "", "")[0]; h.DueIn < 50*time.Minute || h.DueIn > 70*time.Minute {
		e.Errorf("due in %v, want an hour", h.DueIn)
	}
}

func headsFields(e *env) {
	m, dead, left := e.join(storage.Outbox), e.mortal(storage.Outbox), e.join(storage.Outbox)
	recs := []*storage.Record{e.keyed(1, m, "a")[0], e.keyed(1, dead, "b")[0], e.keyed(1, left, "c")[0], e.keyed(1, nil, "d")[0]}
	e.leave(left)
	e.inherit(m, e.published(dead)) // declares it dead
	heads := e.allHeads(m, "", "")
	e.wantHeads("four keys", heads, recs...)
	if e.Failed() {
		return
	}
	for i, h := range heads {
		if h.Owner != recs[i].Owner || h.Living != (i == 0) || h.DueIn > 0 || h.DueIn < -time.Minute ||
			h.Bytes != len(recs[i].Headers)+len(recs[i].Body) {
			e.Errorf("head %d is %+v, the row is of %d", i, h, recs[i].Owner)
		}
	}
}

func headsLanes(e *env) {
	foreign := e.other()
	m, fm := e.join(storage.Inbox), foreign.join(storage.Inbox)
	a, b, c := e.keyedDelivery("g", "s", "k"), e.keyedDelivery("g", "t", "k"), e.keyedDelivery("h", "s", "k")
	upper := e.keyedDelivery("G", "s", "k")
	e.accept(m, a, b, c, upper)
	theirs := foreign.keyedDelivery("g", "s", "k")
	foreign.accept(fm, theirs)
	e.wantHeads("g s", e.allHeads(m, "g", "s"), a)
	e.wantHeads("g t", e.allHeads(m, "g", "t"), b)
	e.wantHeads("h s", e.allHeads(m, "h", "s"), c)
	e.wantHeads("g u", e.allHeads(m, "g", "u"))
	e.wantHeads("of the other version", e.allHeads(fm, "g", "s"), theirs)
	e.wantHeads("asked for", e.heads(m, storage.HeadQuery{Group: "g", Subscriber: "t", Keys: []string{"k"}}), b)
}

func headsPages(e *env) {
	m := e.join(storage.Outbox)
	var want []*storage.Record
	for i := range 25 {
		want = append(want, e.keyed(1+i%3, m, fmt.Sprintf("key-%02d", i))[0])
	}
	var got []storage.Head
	after := ""
	for page := range 10 {
		heads := e.heads(m, storage.HeadQuery{After: after, Limit: 7})
		got = append(got, heads...)
		if len(heads) < 7 {
			if page != 3 {
				e.Errorf("page %d was the last", page)
			}
			break
		}
		after = heads[len(heads)-1].Key
	}
	e.wantHeads("by pages", got, want...)
	e.wantHeads("behind a key that is not there", e.heads(m, storage.HeadQuery{After: "key-22x", Limit: 9}), want[23:]...)
	if _, err := m.Heads(e.op(), storage.HeadQuery{}); err == nil {
		e.Errorf("a page without a limit is not refused")
	}
}

func headsKeys(e *env) {
	m := e.join(storage.Outbox)
	var want []*storage.Record
	var keys []string
	for i := range 700 {
		key := fmt.Sprintf("key-%04d", i)
		rec := e.message(m)
		rec.Key = key
		want, keys = append(want, rec), append(keys, key)
	}
	e.publish(want...)
	e.keyed(1, m, "other")
	slices.Reverse(keys)
	q := storage.HeadQuery{Keys: append(keys, keys[0], "never"), After: "zzz", Limit: 1}
	got := e.heads(m, q)
	slices.SortFunc(got, func(a, b storage.Head) int { return strings.Compare(a.Key, b.Key) })
	e.wantHeads("700 keys, one of them twice", got, want...)
}

func headsBytes(e *env) {
	m := e.join(storage.Outbox)
	keys := []string{"A", "A ", "a", "a\x00", "a\x00b", "ä", strings.Repeat("k", storage.MaxKeyBytes), "\xff\xfe"}
	slices.Sort(keys)
	var want []*storage.Record
	for _, key := range keys {
		want = append(want, e.keyed(1, m, key)[0])
	}
	e.wantHeads("in a page", e.allHeads(m, "", ""), want...)
	for i, key := range keys {
		e.wantHeads("asked for", e.heads(m, storage.HeadQuery{Keys: []string{key}}), want[i])
		if i+1 < len(keys) {
			e.wantHeads("behind a key", e.heads(m, storage.HeadQuery{After: key, Limit: 1}), want[i+1])
		}
		if r := e.mustRow(m, want[i]); r.Key != key {
			e.Errorf("key is %q, want %q", r.Key, key)
		}
	}
}
