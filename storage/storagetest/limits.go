package storagetest

import (
	"bytes"
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

func limitCases() []testCase {
	const bytesWhy = "MaxBytes ends the reading of rows with the one that makes the sum of their headers and bodies exceed it; 0: no limit."
	return []testCase{
		{"limits/lane", "Limit: at most this many rows. Lanes are looked through independently, each by its own limit.", limitLane},
		{"limits/after", "After: start behind this one; zero: from the start.", limitAfter},
		{"limits/after-moves-on", "A scan goes on behind (due_at, seq) of its last row.", limitAfterMovesOn},
		{"limits/takeover-lane", "Lanes are looked through independently, each by its own limit.", limitTakeOverLane},
		{"limits/takeover-after", "After: start behind this one; zero: from the start.", limitTakeOverAfter},
		{"limits/bytes", bytesWhy, limitBytes},
		{"limits/takeover-bytes", bytesWhy, limitTakeOverBytes},
	}
}

// threeLanes accepts rows in lanes of 5, 3 and 1 rows, and returns a query with
// limits of 2, 10 and 1.
func (e *env) threeLanes(m storage.Member) (lanes [][]*storage.Record, q storage.Query) {
	e.Helper()
	for i, n := range []int{5, 3, 1} {
		sub := string(rune('a' + i))
		recs := e.deliveries(n, "g", sub)
		for _, rec := range recs {
			e.accept(m, rec)
		}
		lanes = append(lanes, recs)
		q.Lanes = append(q.Lanes, storage.Lane{Group: "g", Subscriber: sub, Limit: []int{2, 10, 1}[i]})
	}
	return lanes, q
}

// ofLane returns the rows of a subscriber, in their order.
func ofLane(recs []*storage.Record, subscriber string) []*storage.Record {
	return slices.DeleteFunc(slices.Clone(recs), func(r *storage.Record) bool { return r.Subscriber != subscriber })
}

func limitLane(e *env) {
	m := e.join(storage.Inbox)
	lanes, q := e.threeLanes(m)
	got := e.due(m, q)
	e.wantRows("lane of 5, limit 2", ofLane(got, "a"), lanes[0][:2]...)
	e.wantRows("lane of 3, limit 10", ofLane(got, "b"), lanes[1]...)
	e.wantRows("lane of 1, limit 1", ofLane(got, "c"), lanes[2]...)
}

func limitAfter(e *env) {
	m := e.join(storage.Outbox)
	want := e.spread(m)
	for limit := 1; limit <= len(want); limit++ {
		lane := storage.Lane{Limit: limit}
		var read []*storage.Record
		for range len(want) + 1 {
			got := e.due(m, storage.Query{Lanes: []storage.Lane{lane}})
			if len(got) > limit {
				e.Fatalf("%d rows, the limit is %d", len(got), limit)
			}
			read = append(read, got...)
			if len(got) < limit {
				break
			}
			lane.After = got[len(got)-1].Position
		}
		e.wantRows("read page by page", read, want...)
	}
}

// limitAfterMovesOn: the row of the cursor, and rows before it, may be gone.
func limitAfterMovesOn(e *env) {
	m := e.join(storage.Outbox)
	want := e.spread(m)
	got := e.due(m, storage.Query{Lanes: []storage.Lane{{Limit: 3}}})
	e.mustRows("the first three", got, want[:3]...)
	for _, rec := range got {
		e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Retry, After: time.Hour})
	}
	rest := e.due(m, storage.Query{Lanes: []storage.Lane{{Limit: 10, After: got[2].Position}}})
	e.wantRows("behind the third", rest, want[3:]...)
}

func limitTakeOverLane(e *env) {
	m, heir := e.join(storage.Inbox), e.join(storage.Inbox)
	lanes, q := e.threeLanes(m)
	e.leave(m)
	got := e.takeOver(heir, q)
	e.wantSet("lane of 5, limit 2", ofLane(got, "a"), lanes[0][:2]...)
	e.wantSet("lane of 3, limit 10", ofLane(got, "b"), lanes[1]...)
	e.wantSet("lane of 1, limit 1", ofLane(got, "c"), lanes[2]...)
	e.wantSet("the next look", e.takeOver(heir, q), lanes[0][2:4]...)
	e.wantSet("the last look", e.takeOver(heir, q), lanes[0][4])
	e.wantSet("nothing is left", e.takeOver(heir, q))
}

func limitTakeOverAfter(e *env) {
	m, heir := e.join(storage.Outbox), e.join(storage.Outbox)
	want := e.spread(m)
	first := e.due(m, storage.Query{Lanes: []storage.Lane{{Limit: 3}}})
	e.mustRows("the first three", first, want[:3]...)
	e.leave(m)
	q := storage.Query{Lanes: []storage.Lane{{Limit: 10, After: first[2].Position}}}
	e.wantSet("behind the third", e.takeOver(heir, q), want[3:]...)
	e.wantSet("from the start", e.takeOver(heir, allOf("", "")), want[:3]...)
}

func size(recs []*storage.Record) int {
	sum := 0
	for _, rec := range recs {
		sum += len(rec.Headers) + len(rec.Body)
	}
	return sum
}

const (
	heavy    = 10_000
	maxBytes = 3*heavy + heavy/2
)

// heavyRecords returns ten records of 10,000 bytes each.
func (e *env) heavyRecords(m storage.Member) []*storage.Record {
	recs := e.messages(10, m)
	for _, rec := range recs {
		rec.Headers = bytes.Repeat([]byte("h"), heavy/2)
		rec.Body = bytes.Repeat([]byte("b"), heavy/2)
		e.publish(rec)
	}
	return recs
}

// checkCut says whether the reading ended with the row that it should end with.
func (e *env) checkCut(got []*storage.Record, left, most int) {
	e.Helper()
	switch {
	case len(got) == 0 && left > 0:
		e.Fatalf("no row was read of %d", left)
	case len(got) > 0 && size(got[:len(got)-1]) > most:
		e.Fatalf("%d bytes were read without the last row, MaxBytes is %d", size(got[:len(got)-1]), most)
	case len(got) < left && size(got) <= most:
		e.Fatalf("reading ended after %d bytes in %d rows, MaxBytes is %d, %d rows were left", size(got), len(got), most, left)
	}
}

func limitBytes(e *env) {
	m := e.join(storage.Outbox)
	want := e.heavyRecords(m)
	e.wantRows("without a limit", e.due(m, allOf("", "")), want...)
	for _, most := range []int{maxBytes, 1, 100 * heavy} {
		lane := storage.Lane{Limit: 100}
		var read []*storage.Record
		for len(read) < len(want) {
			got := e.due(m, storage.Query{Lanes: []storage.Lane{lane}, MaxBytes: most})
			e.checkCut(got, len(want)-len(read), most)
			read = append(read, got...)
			lane.After = got[len(got)-1].Position
		}
		e.wantRows("read piece by piece", read, want...)
	}
}

func limitTakeOverBytes(e *env) {
	m, heir := e.join(storage.Outbox), e.join(storage.Outbox)
	want := e.heavyRecords(m)
	e.leave(m)
	var taken []*storage.Record
	for len(taken) < len(want) {
		got := e.takeOver(heir, storage.Query{Lanes: []storage.Lane{{Limit: 100}}, MaxBytes: maxBytes})
		e.checkCut(got, len(want)-len(taken), maxBytes)
		e.wantSet("owned after a look that was cut", e.due(heir, allOf("", "")), append(slices.Clone(taken), got...)...)
		taken = append(taken, got...)
	}
	e.wantSet("taken over piece by piece", taken, want...)
}
