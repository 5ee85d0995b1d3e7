package storagetest

import (
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

func dueCases() []testCase {
	const next = "next is the wait until the earliest row of the queried lanes that is not due yet; negative when there is none."
	return []testCase{
		{"due/order", "Due reads rows of this member that are due, in order of due time.", dueOrder},
		{"due/unchanged", "Due reads rows without changing them. Rows that the caller has in hand are returned too.", dueUnchanged},
		{"due/own", "Due reads rows of this member.", dueOwn},
		{"due/lanes", "In the inbox each subscription is a lane.", dueLanes},
		{"due/version", "version isolates services that share tables.", dueVersion},
		{"due/next", next, dueNext},
		{"due/next-of-lanes", next, dueNextOfLanes},
		{"due/next-none", next, dueNextNone},
		{"due/ids", "IDs asks for just these rows, due or not; the rest is ignored.", dueIDs},
	}
}

// spread returns records that have been due for some hours, in order of their
// due times; equal ones in order of insertion.
func (e *env) spread(m storage.Member) []*storage.Record {
	recs := e.messages(7, m)
	base := time.Now().Add(-24 * time.Hour).Truncate(time.Second)
	for i, hour := range []int{1, 2, 2, 2, 3, 4, 4} {
		recs[i].DueAt = base.Add(time.Duration(hour) * time.Hour)
	}
	for _, i := range []int{5, 1, 4, 2, 0, 3, 6} {
		e.publish(recs[i])
	}
	return recs
}

func dueOrder(e *env) {
	m := e.join(storage.Outbox)
	want := e.spread(m)
	got := e.due(m, allOf("", ""))
	e.mustRows("in order of due time, then of seq", got, want...)
	for i, r := range got {
		if !r.Position.DueAt.Equal(want[i].DueAt) {
			e.Errorf("row %d is due at %v, want %v", i, r.Position.DueAt, want[i].DueAt)
		}
	}
}

func dueUnchanged(e *env) {
	m := e.join(storage.Outbox)
	e.publish(e.messages(3, m)...)
	first := e.due(m, allOf("", ""))
	second := e.due(m, allOf("", ""))
	e.mustRows("looked at again", second, first...)
	for i := range second {
		if a, b := first[i], second[i]; a.Status != b.Status || !a.Position.DueAt.Equal(b.Position.DueAt) ||
			a.Position.Seq != b.Position.Seq || a.Takeovers != b.Takeovers || a.Owner != b.Owner || a.Retries != b.Retries {
			e.Errorf("a look changed a row: %+v, was %+v", *b, *a)
		}
	}
}

func dueOwn(e *env) {
	m, other := e.join(storage.Inbox), e.join(storage.Inbox)
	mine := e.accepted(m)
	theirs := e.accepted(other)
	e.wantRows("by lane", e.due(m, allOf("g", "s")), mine)
	e.wantRows("by id", e.due(m, byID(mine, theirs)), mine)
	e.leave(other)
	e.wantRows("by lane, after the other has left", e.due(m, allOf("g", "s")), mine)
	e.wantRows("by id, after the other has left", e.due(m, byID(mine, theirs)), mine)
}

func dueLanes(e *env) {
	m := e.join(storage.Inbox)
	a, b, c := e.delivery("g1", "s1"), e.delivery("g1", "s2"), e.delivery("g2", "s1")
	upper, space := e.delivery("G1", "s1"), e.delivery("g1", "s1 ")
	e.accept(m, a, b, c, upper, space)
	e.wantRows("g1 s1", e.due(m, allOf("g1", "s1")), a)
	e.wantRows("g1 s2", e.due(m, allOf("g1", "s2")), b)
	e.wantRows("g2 s1", e.due(m, allOf("g2", "s1")), c)
	e.wantRows("G1 s1", e.due(m, allOf("G1", "s1")), upper)
	e.wantRows("g1 'S1'", e.due(m, allOf("g1", "S1")))
	q := storage.Query{Lanes: []storage.Lane{{Group: "g1", Subscriber: "s1", Limit: 9}, {Group: "g2", Subscriber: "s1", Limit: 9}}}
	e.wantSet("two lanes", e.due(m, q), a, c)
	e.wantRows("no lane", e.due(m, storage.Query{}))
}

func dueVersion(e *env) {
	foreign := e.other()
	m, fm := e.join(storage.Outbox), foreign.join(storage.Outbox)
	stray := foreign.message(m) // of the other version, owned by ours
	e.publish(stray)
	mine, theirs := e.published(m), foreign.published(fm)
	e.wantRows("of our version", e.due(m, allOf("", "")), mine)
	e.wantRows("of the other version", e.due(fm, allOf("", "")), theirs)
}

func (e *env) wantNext(what string, next, want time.Duration) {
	e.Helper()
	switch {
	case want < 0:
		if next >= 0 {
			e.Errorf("%s: next is %v, want a negative one", what, next)
		}
	case next < want-time.Minute || next > want+time.Second:
		e.Errorf("%s: next is %v, want %v", what, next, want)
	}
}

func dueNext(e *env) {
	m, other := e.join(storage.Outbox), e.join(storage.Outbox)
	e.publish(e.messages(3, m)...)
	_, next := e.look(m, allOf("", ""))
	e.wantNext("due rows alone", next, -1)
	for _, delay := range []time.Duration{2 * time.Hour, time.Hour, 3 * time.Hour} {
		rec := e.message(m)
		rec.Delay = delay
		e.publish(rec)
	}
	sooner := e.message(other)
	sooner.Delay = 10 * time.Minute
	e.publish(sooner)
	recs, next := e.look(m, allOf("", ""))
	e.wantNext("with delayed rows", next, time.Hour)
	if len(recs) != 3 {
		e.Fatalf("%d rows are due, want 3", len(recs))
	}
	_, next = e.look(m, storage.Query{Lanes: []storage.Lane{{Limit: 1}}})
	e.wantNext("with a full lane", next, time.Hour)
	_, next = e.look(m, storage.Query{Lanes: []storage.Lane{{Limit: 9, After: recs[len(recs)-1].Position}}})
	e.wantNext("behind the last row", next, time.Hour)
	e.mustSettle(m, storage.Outcome{ID: recs[0].ID, Kind: storage.Retry, After: 30 * time.Minute})
	_, next = e.look(m, allOf("", ""))
	e.wantNext("with a row that is tried again", next, 30*time.Minute)
}

func dueNextOfLanes(e *env) {
	m := e.join(storage.Inbox)
	for i, sub := range []string{"s1", "s2", "s3"} {
		rec := e.delivery("g", sub)
		e.accept(m, rec)
		e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Postpone, After: time.Duration(i+1) * time.Hour})
	}
	lane := func(sub string) storage.Lane { return storage.Lane{Group: "g", Subscriber: sub, Limit: 5} }
	_, next := e.look(m, storage.Query{Lanes: []storage.Lane{lane("s3"), lane("s2")}})
	e.wantNext("lanes s3 and s2", next, 2*time.Hour)
	_, next = e.look(m, storage.Query{Lanes: []storage.Lane{lane("s3")}})
	e.wantNext("lane s3", next, 3*time.Hour)
	_, next = e.look(m, storage.Query{Lanes: []storage.Lane{lane("s4")}})
	e.wantNext("an empty lane", next, -1)
}

func dueNextNone(e *env) {
	m := e.join(storage.Inbox)
	recs, next := e.look(m, allOf("g", "s"))
	e.wantRows("in an empty storage", recs)
	e.wantNext("in an empty storage", next, -1)
	rec := e.accepted(m)
	e.mustSettle(m, succeed(rec))
	recs, next = e.look(m, allOf("g", "s"))
	e.wantRows("after the last row is final", recs)
	e.wantNext("after the last row is final", next, -1)
}

func dueIDs(e *env) {
	m, other := e.join(storage.Outbox), e.join(storage.Outbox)
	now, later := e.message(m), e.message(m)
	later.Delay = time.Hour
	theirs, final, unknown, bystander := e.message(other), e.message(m), e.message(m), e.message(m)
	e.publish(now, later, theirs, final, bystander)
	e.mustSettle(m, succeed(final))
	q := byID(now, later, theirs, final, unknown, now)
	q.Lanes = []storage.Lane{{Limit: 1}}
	e.wantSet("by id", e.due(m, q), now, later)

	recs := e.messages(500, m)
	e.publish(recs...)
	got := e.due(m, byID(recs...))
	e.wantSet("500 by id", got, recs...)
	if slices.Contains(idsOf(got), bystander.ID) {
		e.Errorf("a row came that was not asked for")
	}
}
