package storagetest

import (
	"time"

	"github.com/capbus/gocap/storage"
)

func staleCases() []testCase {
	const why = "Stale, in TakeOver, restricts to rows that have been due for so long, and lets a lane match every subscriber of its group, unmatched rows included."
	return []testCase{
		{"stale/age", why, staleAge},
		{"stale/group", why, staleGroup},
		{"stale/served", "A subscription of which another living member owns rows is served, and left alone.", staleServed},
		{"stale/lane-without", "Each subscription is a lane: without Stale a lane matches its subscriber alone.", staleWithout},
	}
}

func staleAge(e *env) {
	heir := e.join(storage.Outbox)
	old, recent := e.message(nil), e.message(nil)
	old.DueAt, recent.DueAt = time.Now().Add(-2*time.Hour), time.Now().Add(-30*time.Minute)
	e.publish(old, recent)
	q := allOf("", "")
	q.Stale = time.Hour
	e.wantRows("due for an hour", e.takeOver(heir, q), old)
	q.Stale = 24 * time.Hour
	e.wantRows("due for a day", e.takeOver(heir, q))
	e.wantRows("due at all", e.takeOver(heir, allOf("", "")), recent)
}

func staleGroup(e *env) {
	m, heir := e.join(storage.Inbox), e.join(storage.Inbox)
	a, b, unmatched := e.delivery("g", "a"), e.delivery("g", "b"), e.delivery("g", "")
	elsewhere, final := e.delivery("h", "a"), e.delivery("g", "a")
	e.accept(m, a, b, unmatched, elsewhere, final)
	e.mustSettle(m, succeed(final))
	e.leave(m)
	q := allOf("g", "whatever")
	q.Stale = time.Hour
	e.wantRows("due for an hour", e.takeOver(heir, q))
	q.Stale = time.Millisecond
	var got []*storage.Record
	e.eventually("three rows are due for a millisecond", func() bool {
		got = append(got, e.takeOver(heir, q)...)
		return len(got) >= 3
	})
	e.wantSet("of every subscriber of the group", got, a, b, unmatched)
	for _, r := range got {
		e.wantTakeovers("of every subscriber", r, heir, 0)
	}
	e.mustSettle(heir, storage.Outcome{ID: unmatched.ID, Kind: storage.Fail, After: time.Hour, Callback: true})
	if r := e.mustRow(heir, unmatched); !r.Final {
		e.Errorf("an unmatched row that was taken over and failed is not final")
	}
}

func staleServed(e *env) {
	dead, serves, heir := e.join(storage.Inbox), e.join(storage.Inbox), e.join(storage.Inbox)
	left, own, gone := e.delivery("g", "a"), e.delivery("g", "a"), e.delivery("g", "b")
	e.accept(dead, left, gone)
	e.accept(serves, own)
	e.leave(dead)
	q := allOf("g", "")
	q.Stale = time.Millisecond
	var got []*storage.Record
	e.eventually("the row that nobody serves is due for a millisecond", func() bool {
		got = append(got, e.takeOver(heir, q)...)
		return len(got) >= 1
	})
	got = append(got, e.takeOver(heir, q)...)
	e.wantSet("of the subscription that nobody serves", got, gone)
	e.leave(serves)
	got = nil
	e.eventually("the others have no living owner", func() bool {
		got = append(got, e.takeOver(heir, q)...)
		return len(got) >= 2
	})
	e.wantSet("of the one that nobody serves any more", got, left, own)
}

func staleWithout(e *env) {
	m, heir := e.join(storage.Inbox), e.join(storage.Inbox)
	a, b, unmatched := e.delivery("g", "a"), e.delivery("g", "b"), e.delivery("g", "")
	e.accept(m, a, b, unmatched)
	e.leave(m)
	e.wantRows("lane a", e.takeOver(heir, allOf("g", "a")), a)
	e.wantRows("lane c", e.takeOver(heir, allOf("g", "c")))
	left, err := heir.Unmatched(e.op(), []string{"g"}, 0, 10)
	e.must(err, "unmatched")
	e.wantRows("unmatched", left, unmatched)
}
