package storagetest

import (
	"slices"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
)

func takeOverCases() []testCase {
	const count = "Taken from an instance that died, Takeovers 0 becomes 1."
	const nobody = "An owner that is not living is nobody, whether its heartbeat row is ended, run out or gone."
	return []testCase{
		{"takeover/dead", count + " It declares instances dead whose lease has run out.", takeOverDead},
		{"takeover/dead-again", count + " It changes no other value.", takeOverDeadAgain},
		{"takeover/left", "Leave: what it still owns is anyone's, and nothing is counted as a death.", takeOverLeft},
		{"takeover/never-known", nobody, takeOverNeverKnown},
		{"takeover/owner-null", "Rows with owner NULL go the same way.", takeOverFree},
		{"takeover/unchanged", "Taking a row raises takeovers from 0 to 1 and changes no other value.", takeOverUnchanged},
		{"takeover/living", "TakeOver makes rows that have no living owner this member's.", takeOverLiving},
		{"takeover/beating", "An instance lives while it renews its lease.", takeOverBeating},
		{"takeover/by-id", "TakeOver by ids takes rows that have no living owner, due or not.", takeOverByID},
		{"takeover/final", "Every change is conditional on the row not being final.", takeOverFinal},
		{"takeover/callback-owed", "failed, final, due: owned and taken over like any row, so it runs again if the process dies.", takeOverCallback},
		{"takeover/version", "version isolates services that share tables.", takeOverVersion},
		{"takeover/lost-to-heir", "A settle under the old number changes nothing once another has the row.", takeOverSettleLate},
		{"takeover/by-the-ended", "A member that has ended, or finds that its own lease has run out, takes nothing: ErrLost, when there was something to take.", takeOverByEnded},
		{"takeover/shared", "A dead owner's backlog is shared by all who look: no row is taken by two.", takeOverShared},
	}
}

func (e *env) wantTakeovers(what string, rec *storage.Record, heir storage.Member, want int) {
	e.Helper()
	if rec.Takeovers != want || rec.Owner != heir.Number() {
		e.Errorf("%s: takeovers %d, owner %d, want %d and %d", what, rec.Takeovers, rec.Owner, want, heir.Number())
	}
}

func takeOverDead(e *env) {
	for _, box := range []storage.Box{storage.Outbox, storage.Inbox} {
		heir, mortal := e.join(box), e.mortal(box)
		rec, q := e.message(mortal), allOf("", "")
		if box == storage.Inbox {
			rec, q = e.delivery("g", "s"), allOf("g", "s")
			e.accept(mortal, rec)
		} else {
			e.publish(rec)
		}
		var got []*storage.Record
		e.eventually("the row of a dead instance is taken over", func() bool {
			got = e.takeOver(heir, q)
			return len(got) > 0
		})
		e.wantRows("taken over", got, rec)
		e.wantTakeovers("as returned", got[0], heir, 1)
		e.wantTakeovers("as stored", e.mustRow(heir, rec), heir, 1)
		e.wantRows("what the dead still has", e.due(mortal, byID(rec)))
	}
}

func takeOverDeadAgain(e *env) {
	first, second, heir := e.mortal(storage.Outbox), e.mortal(storage.Outbox), e.join(storage.Outbox)
	rec := e.published(first)
	e.eventually("the second takes the row over, or the heir", func() bool {
		if got, err := second.TakeOver(e.op(), byID(rec)); err == nil && len(got) > 0 {
			e.wantTakeovers("the first time", got[0], second, 1)
			return true
		}
		second = e.mortal(storage.Outbox) // it died before the first one was dead
		return false
	})
	got := e.inherit(heir, rec)
	e.wantTakeovers("the second time", got[0], heir, 1)
}

func takeOverLeft(e *env) {
	m, heir := e.join(storage.Outbox), e.join(storage.Outbox)
	rec := e.published(m)
	e.leave(m)
	got := e.takeOver(heir, allOf("", ""))
	e.wantRows("taken over at once", got, rec)
	for _, r := range got {
		e.wantTakeovers("from one that has left", r, heir, 0)
	}
}

func takeOverNeverKnown(e *env) {
	heir := e.join(storage.Outbox)
	rec := e.message(nil)
	rec.Owner = ids.Number()
	e.publish(rec)
	got := e.takeOver(heir, allOf("", ""))
	e.wantRows("taken over at once", got, rec)
	for _, r := range got {
		e.wantTakeovers("from one that was never known", r, heir, 0)
	}
}

func takeOverFree(e *env) {
	heir, inbox := e.join(storage.Outbox), e.join(storage.Inbox)
	rec := e.published(nil)
	got := e.takeOver(heir, allOf("", ""))
	e.wantRows("taken over at once", got, rec)
	for _, r := range got {
		e.wantTakeovers("from nobody", r, heir, 0)
	}
	waiting := e.delivery("g", "")
	e.accept(inbox, waiting)
	got = e.takeOver(inbox, byID(waiting))
	e.wantRows("an unmatched one by its id", got, waiting)
}

func takeOverUnchanged(e *env) {
	m, heir := e.join(storage.Outbox), e.join(storage.Outbox)
	rec := e.published(m)
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Retry, Attempt: 1, Error: "first answer"})
	before := e.mustRow(m, rec)
	e.leave(m)
	got := e.takeOver(heir, allOf("", ""))
	e.wantRows("taken over", got, rec)
	if len(got) != 1 {
		return
	}
	for _, r := range []*storage.Record{got[0], e.mustRow(heir, rec)} {
		e.checkContent(r, rec)
		if r.Status != before.Status || r.Retries != 1 || r.LastError != "first answer" || r.Final ||
			!r.Position.DueAt.Equal(before.Position.DueAt) || r.Position.Seq != before.Position.Seq {
			e.Errorf("taking over changed %+v to %+v", *before, *r)
		}
	}
}

func takeOverLiving(e *env) {
	m, looker := e.join(storage.Inbox), e.join(storage.Inbox)
	rec := e.accepted(m)
	stale := allOf("g", "s")
	stale.Stale = time.Microsecond
	for _, q := range []storage.Query{allOf("g", "s"), byID(rec), stale} {
		e.wantRows("taken from a living owner", e.takeOver(looker, q))
		e.wantRows("taken from oneself", e.takeOver(m, q))
	}
	e.wantTakeovers("still", e.mustRow(m, rec), m, 0)
}

// takeOverBeating takes a take-over for wrong only while the lease, counted
// from before the last renewal, cannot have run out.
func takeOverBeating(e *env) {
	lease := 4 * e.cfg.lease
	begun := time.Now()
	m, looker := e.joinFor(storage.Outbox, lease), e.join(storage.Outbox)
	rec := e.published(m)
	renewed := begun
	e.eventually("three leases have passed", func() bool {
		before := time.Now()
		err := m.Beat(e.op())
		if err == nil {
			renewed = before
		}
		taken := e.takeOver(looker, byID(rec))
		if time.Since(renewed) < lease-coarse {
			e.must(err, "beat")
			e.wantRows("taken from an owner that beats", taken)
		} else if len(taken) > 0 { // too slow a machine: once more
			m, begun = e.joinFor(storage.Outbox, lease), time.Now()
			rec, renewed = e.published(m), begun
		}
		return time.Since(begun) > 3*lease
	})
}

func takeOverByID(e *env) {
	m, living, heir := e.join(storage.Outbox), e.join(storage.Outbox), e.join(storage.Outbox)
	now, later, other := e.message(m), e.message(m), e.message(m)
	later.Delay = time.Hour
	theirs := e.message(living)
	e.publish(now, later, other, theirs)
	e.leave(m)
	q := byID(now, later, theirs, e.message(nil), now)
	q.Stale, q.MaxBytes, q.Lanes = time.Hour, 1, []storage.Lane{{Limit: 1}}
	got := e.takeOver(heir, q)
	e.wantSet("taken over by id", got, now, later)
	if r := e.mustRow(heir, later); r.Status != storage.Delayed {
		e.Errorf("a delayed row that was taken over is %v", r.Status)
	}
	e.wantSet("taken over by lane", e.takeOver(heir, allOf("", "")), other)
}

func takeOverFinal(e *env) {
	m, heir := e.join(storage.Inbox), e.join(storage.Inbox)
	done, failed, later := e.accepted(m), e.accepted(m), e.accepted(m)
	e.mustSettle(m, succeed(done), storage.Outcome{ID: failed.ID, Kind: storage.Fail, After: time.Hour},
		storage.Outcome{ID: later.ID, Kind: storage.Postpone, After: time.Hour})
	e.leave(m)
	e.wantRows("by id", e.takeOver(heir, byID(done, failed)))
	e.wantRows("by lane, one row not due", e.takeOver(heir, allOf("g", "s")))
}

func takeOverCallback(e *env) {
	m, mortal, heir := e.join(storage.Inbox), e.mortal(storage.Inbox), e.join(storage.Inbox)
	left, dead := e.accepted(m), e.accepted(mortal)
	e.mustSettle(m, storage.Outcome{ID: left.ID, Kind: storage.Fail, After: time.Hour, Callback: true})
	e.mustSettle(mortal, storage.Outcome{ID: dead.ID, Kind: storage.Fail, After: time.Hour, Callback: true})
	e.leave(m)
	for i, r := range e.inherit(heir, left, dead) {
		e.wantTakeovers("a row whose callback is owed", r, heir, i)
		if !r.Final || r.Status != storage.Failed {
			e.Errorf("a row whose callback is owed is %v, final %t", r.Status, r.Final)
		}
	}
	e.mustSettle(heir, storage.Outcome{ID: left.ID, Kind: storage.CallbackDone}, storage.Outcome{ID: dead.ID, Kind: storage.CallbackDone})
	e.wantRows("after the callbacks", e.due(heir, allOf("g", "s")))
}

func takeOverVersion(e *env) {
	foreign := e.other()
	heir := e.join(storage.Outbox)
	theirs := foreign.published(nil)
	mine := e.published(nil)
	e.wantRows("by id", e.takeOver(heir, byID(theirs)))
	e.wantRows("by lane", e.takeOver(heir, allOf("", "")), mine)
}

func takeOverSettleLate(e *env) {
	m, heir := e.join(storage.Inbox), e.join(storage.Inbox)
	for kind := storage.Succeed; kind <= storage.Fail; kind++ {
		rec := e.accepted(m)
		old := e.joinFor(storage.Inbox, longLease)
		e.leave(m)
		e.wantRows("taken over", e.takeOver(heir, byID(rec)), rec)
		lost := e.settle(m, storage.Outcome{ID: rec.ID, Kind: kind, After: time.Hour, Attempt: 1, Error: "late"})
		e.wantIDs("reported lost", lost, rec.ID)
		if r := e.mustRow(heir, rec); r.Retries != 0 || r.LastError != "" || r.Status != storage.Scheduled {
			e.Errorf("a settle under the old number changed the row: %+v", *r)
		}
		e.wantRows("still due", e.due(heir, allOf("g", "s")), rec)
		e.mustSettle(heir, succeed(rec))
		m = old
	}
}

func takeOverByEnded(e *env) {
	left, dead, heir := e.join(storage.Outbox), e.mortal(storage.Outbox), e.join(storage.Outbox)
	e.leave(left)
	e.inherit(heir, e.published(dead))
	free := e.published(nil)
	for _, m := range []storage.Member{left, dead} {
		for _, q := range []storage.Query{byID(free), allOf("", "")} {
			got, err := m.TakeOver(e.op(), q)
			wantLost(e, "take over by a member that has ended", err)
			e.wantRows("taken by a member that has ended", got)
		}
	}
	e.wantRows("taken by the living", e.takeOver(heir, byID(free)), free)
}

func takeOverShared(e *env) {
	const rows, lookers = 200, 4
	m := e.join(storage.Outbox)
	recs := e.messages(rows, m)
	e.publish(recs...)
	members := make([]storage.Member, lookers)
	for i := range members {
		members[i] = e.join(storage.Outbox)
	}
	e.leave(m)
	var mu sync.Mutex
	owner := map[storage.ID]int64{}
	ctx := e.op()
	together(lookers, func(i int) {
		for {
			got, err := members[i].TakeOver(ctx, storage.Query{Lanes: []storage.Lane{{Limit: 7}}})
			mu.Lock()
			for _, r := range got {
				if by, twice := owner[r.ID]; twice {
					e.Errorf("row %v was taken by %d and by %d", r.ID, by, members[i].Number())
				}
				owner[r.ID] = members[i].Number()
			}
			all := len(owner) >= rows
			mu.Unlock()
			if err != nil {
				e.Errorf("take over: %v", err)
			}
			if err != nil || all {
				return
			}
		}
	})
	for _, member := range members {
		e.wantSet("what a member has", e.due(member, allOf("", "")), slices.DeleteFunc(slices.Clone(recs), func(r *storage.Record) bool {
			return owner[r.ID] != member.Number()
		})...)
	}
}
