package storagetest

import (
	"errors"
	"time"

	"github.com/capbus/gocap/storage"
)

func lockCases() []testCase {
	const why = "Locked, in TakeOver by lanes, takes from a lane only while the member holds the lock of the lane (of its version and box), which TakeOver takes when it is free and renews."
	const until = "A lock is held for a lease from the database's now, and ends when the member leaves."
	return []testCase{
		{"lock/one", why, lockOne},
		{"lock/lanes", why, lockLanes},
		{"lock/others", why, lockOthers},
		{"lock/without", "Locked, in TakeOver by lanes: a look without it, and one by ids, is not bound by locks.", lockWithout},
		{"lock/left", until, lockLeft},
		{"lock/run-out", until, lockRunOut},
		{"lock/renewed", until, lockRenewed},
	}
}

// locks reports whether the storage has locks.
func (e *env) locks() bool {
	_, ok := e.store.(storage.Locker)
	return ok
}

func locked(group, subscriber string) storage.Query {
	q := allOf(group, subscriber)
	q.Locked = true
	return q
}

// left makes rows of the lane that have no living owner.
func (e *env) left(n int, group, subscriber string) []*storage.Record {
	e.Helper()
	m := e.join(storage.Inbox)
	recs := e.accept(m, e.deliveries(n, group, subscriber)...)
	e.leave(m)
	return recs
}

func lockOne(e *env) {
	if !e.locks() {
		return
	}
	a, b := e.join(storage.Inbox), e.join(storage.Inbox)
	e.wantRows("of an empty lane", e.takeOver(a, locked("g", "s")))
	recs := e.left(3, "g", "s")
	e.wantRows("to who has no lock", e.takeOver(b, locked("g", "s")))
	e.wantSet("to who has it", e.takeOver(a, locked("g", "s")), recs...)
}

func lockLanes(e *env) {
	if !e.locks() {
		return
	}
	a, b := e.join(storage.Inbox), e.join(storage.Inbox)
	e.takeOver(a, locked("g", "s"))
	e.takeOver(b, locked("g", "t"))
	s, t := e.left(2, "g", "s"), e.left(2, "g", "t")
	both := locked("g", "s")
	both.Lanes = append(both.Lanes, locked("g", "t").Lanes...)
	e.wantSet("of the lanes whose lock it has", e.takeOver(b, both), t...)
	e.wantSet("of the lanes whose lock it has", e.takeOver(a, both), s...)
}

func lockOthers(e *env) {
	if !e.locks() {
		return
	}
	other := e.other()
	e.takeOver(other.join(storage.Inbox), locked("g", "s"))
	e.takeOver(e.join(storage.Outbox), locked("", ""))
	a := e.join(storage.Inbox)
	recs := e.left(1, "g", "s")
	e.wantSet("locks are those of a version and box", e.takeOver(a, locked("g", "s")), recs...)
}

func lockWithout(e *env) {
	if !e.locks() {
		return
	}
	a, b := e.join(storage.Inbox), e.join(storage.Inbox)
	e.takeOver(a, locked("g", "s"))
	recs := e.left(2, "g", "s")
	q := byID(recs[0])
	q.Locked = true
	e.wantSet("by id", e.takeOver(b, q), recs[0])
	e.wantSet("without Locked", e.takeOver(b, allOf("g", "s")), recs[1])
}

func lockLeft(e *env) {
	if !e.locks() {
		return
	}
	a, b := e.join(storage.Inbox), e.join(storage.Inbox)
	e.takeOver(a, locked("g", "s"))
	recs := e.left(1, "g", "s")
	e.leave(a)
	e.wantSet("after the holder has left", e.takeOver(b, locked("g", "s")), recs...)
}

func lockRunOut(e *env) {
	if !e.locks() {
		return
	}
	a, b := e.joinFor(storage.Inbox, 20*e.cfg.lease), e.join(storage.Inbox)
	e.takeOver(a, locked("g", "s"))
	recs := e.left(1, "g", "s")
	var got []*storage.Record
	e.eventually("the lock of a member that does not renew it is free", func() bool {
		got = e.takeOver(b, locked("g", "s"))
		return len(got) > 0
	})
	e.wantSet("after the lock has run out", got, recs...)
	e.left(1, "g", "s")
	late, err := a.TakeOver(e.op(), locked("g", "s"))
	if len(late) > 0 || err != nil && !errors.Is(err, storage.ErrLost) {
		e.Errorf("a member that slept past its lock takes %d rows, %v", len(late), err)
	}
}

// lockRenewed: a renewal is from now, and does not add up.
func lockRenewed(e *env) {
	if !e.locks() {
		return
	}
	lease := 20 * e.cfg.lease
	a, b := e.joinFor(storage.Inbox, lease), e.join(storage.Inbox)
	const times = 40
	begun := time.Now()
	for range times {
		e.must(a.Beat(e.op()), "beat")
		e.takeOver(a, locked("g", "s"))
	}
	renewed := time.Now()
	recs := e.left(1, "g", "s")
	var got []*storage.Record
	e.eventually("the lock is free", func() bool {
		got = e.takeOver(b, locked("g", "s"))
		return len(got) > 0
	})
	e.wantSet("after the lock has run out", got, recs...)
	if took := time.Since(renewed); took > times/2*lease {
		e.Errorf("%d renewals within %v hold the lock for %v, the lease is %v", times, renewed.Sub(begun), took, lease)
	}
}
