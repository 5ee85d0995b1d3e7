package storagetest

import (
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

func claimCases() []testCase {
	const why = "Claim writes, before a row is tried, what must be known if this process dies: "
	return []testCase{
		{"claim/delayed", why + "a delayed row that is due becomes scheduled.", claimDelayed},
		{"claim/takeovers", why + "a row with Takeovers of 1 or more gets one more. It returns the rows changed, as they then are.", claimTakeovers},
		{"claim/nothing-to-write", "It returns the rows changed.", claimNothing},
		{"claim/not-owned", "Every change is conditional on the member owning the row, and on the row not being final.", claimNotOwned},
		{"claim/once", why + "a delayed row that is due becomes scheduled.", claimOnce},
		{"claim/survives-death", "Takeovers counts the tries that ended with the process.", claimSurvives},
		{"claim/release-of-first", "Release, Claimed: what Claim added to Takeovers is taken off, but 1 stays 1.", claimReleaseFirst},
		{"claim/release", "Release: the attempt did not take place. The row stays as it was; what Claim added to Takeovers is taken off (Claimed).", claimRelease},
	}
}

// delayedDue returns a delayed row of the member that is due.
func (e *env) delayedDue(m storage.Member) *storage.Record {
	e.Helper()
	rec := e.message(m)
	rec.Delay = time.Millisecond
	e.publish(rec)
	e.eventually("a delayed row is due", func() bool { return slices.Contains(idsOf(e.due(m, allOf("", ""))), rec.ID) })
	return rec
}

func claimDelayed(e *env) {
	m := e.join(storage.Outbox)
	rec := e.delayedDue(m)
	before := e.mustRow(m, rec)
	if before.Status != storage.Delayed {
		e.Errorf("before the claim the row is %v", before.Status)
	}
	later := e.message(m)
	later.Delay = time.Hour
	e.publish(later)
	got := e.claim(m, before, e.mustRow(m, later))
	e.wantRows("claimed", got, rec)
	for _, r := range append(got, e.mustRow(m, rec)) {
		if r.Status != storage.Scheduled || r.Takeovers != 0 || r.Owner != m.Number() {
			e.Errorf("after the claim the row is %v, takeovers %d", r.Status, r.Takeovers)
		}
		e.checkContent(r, rec)
	}
	e.wantRows("claimed again", e.claim(m, before))
	if r := e.mustRow(m, later); r.Status != storage.Delayed {
		e.Errorf("a row that is not due yet is %v after a claim", r.Status)
	}
}

func claimTakeovers(e *env) {
	m := e.join(storage.Outbox)
	rec := e.orphan(m)
	for want := 2; want <= 4; want++ {
		got := e.claim(m, rec)
		e.wantRows("claimed", got, rec)
		if len(got) == 1 && got[0].Takeovers != want {
			e.Errorf("takeovers as returned: %d, want %d", got[0].Takeovers, want)
		}
		r := e.mustRow(m, rec)
		if r.Takeovers != want || r.Status != storage.Scheduled || r.Retries != 0 {
			e.Errorf("after a claim: %v, takeovers %d, retries %d", r.Status, r.Takeovers, r.Retries)
		}
	}
}

func claimNothing(e *env) {
	m := e.join(storage.Outbox)
	rec := e.published(m)
	e.wantRows("nothing to write", e.claim(m, rec))
	e.wantRows("of nothing", e.claim(m))
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Retry, Attempt: 1})
	e.wantRows("nothing to write for a retried one", e.claim(m, rec))
	if r := e.mustRow(m, rec); r.Takeovers != 0 || r.Status != storage.Failed {
		e.Errorf("a claim changed a row: %+v", *r)
	}
}

func claimNotOwned(e *env) {
	m, other := e.join(storage.Outbox), e.join(storage.Outbox)
	delayed, orphan := e.delayedDue(m), e.orphan(m)
	e.wantRows("of another", e.claim(other, delayed, orphan))
	if r := e.mustRow(m, delayed); r.Status != storage.Delayed {
		e.Errorf("another's claim made the row %v", r.Status)
	}
	if r := e.mustRow(m, orphan); r.Takeovers != 1 {
		e.Errorf("another's claim made takeovers %d", r.Takeovers)
	}
	e.mustSettle(m, succeed(delayed), succeed(orphan))
	e.wantRows("of final rows", e.claim(m, delayed, orphan))
	e.wantRows("of an unknown row", e.claim(m, e.message(m)))
}

func claimOnce(e *env) {
	m := e.join(storage.Outbox)
	rec := e.delayedDue(m)
	const n = 6
	won := make([]int, n)
	ctx := e.op()
	together(n, func(i int) {
		got, err := m.Claim(ctx, rec)
		if err != nil {
			e.Errorf("claim: %v", err)
		}
		won[i] = len(got)
	})
	total := 0
	for _, w := range won {
		total += w
	}
	if total != 1 {
		e.Errorf("a delayed row was claimed %d times, want once", total)
	}
}

func claimSurvives(e *env) {
	first, heir := e.mortal(storage.Outbox), e.join(storage.Outbox)
	rec := e.message(first)
	e.publish(rec)
	var got []*storage.Record
	var second storage.Member
	e.eventually("a second one takes over and claims", func() bool {
		second = e.mortal(storage.Outbox)
		if taken, err := second.TakeOver(e.op(), byID(rec)); err != nil || len(taken) == 0 {
			return false
		}
		got = e.claim(second, rec)
		return true
	})
	e.wantRows("claimed", got, rec)
	r := e.inherit(heir, rec)[0]
	e.wantTakeovers("after two deaths and one claim", r, heir, 2)
}

func claimReleaseFirst(e *env) {
	m := e.join(storage.Outbox)
	orphan, sound := e.orphan(m), e.published(m)
	e.claim(m, orphan)
	e.claim(m, orphan)
	for _, want := range []int{2, 1, 1} {
		e.mustSettle(m, storage.Outcome{ID: orphan.ID, Kind: storage.Release, Claimed: true})
		if r := e.mustRow(m, orphan); r.Takeovers != want {
			e.Errorf("release made takeovers %d, want %d", r.Takeovers, want)
		}
	}
	e.mustSettle(m, storage.Outcome{ID: sound.ID, Kind: storage.Release, Claimed: true})
	if r := e.mustRow(m, sound); r.Takeovers != 0 {
		e.Errorf("release of a row that nobody has died with made takeovers %d", r.Takeovers)
	}
}

func claimRelease(e *env) {
	m := e.join(storage.Outbox)
	orphan, delayed := e.orphan(m), e.delayedDue(m)
	before := e.mustRow(m, orphan)
	e.claim(m, orphan, delayed)
	release := func(rec *storage.Record, claimed bool) storage.Outcome {
		return storage.Outcome{ID: rec.ID, Kind: storage.Release, Claimed: claimed}
	}
	e.mustSettle(m, release(orphan, true), release(delayed, false))
	after := e.mustRow(m, orphan)
	if after.Takeovers != 1 || after.Retries != before.Retries || after.Status != before.Status ||
		!after.Position.DueAt.Equal(before.Position.DueAt) || after.Owner != m.Number() {
		e.Errorf("after claim and release: %+v, was %+v", *after, *before)
	}
	e.mustSettle(m, release(orphan, false))
	if r := e.mustRow(m, orphan); r.Takeovers != 1 {
		e.Errorf("release of a row that was not claimed made takeovers %d, want 1", r.Takeovers)
	}
	e.wantSet("still due", e.due(m, allOf("", "")), orphan, delayed)
	other := e.join(storage.Outbox)
	e.wantIDs("release by another is lost", e.settle(other, release(orphan, true)), orphan.ID)
	if r := e.mustRow(m, orphan); r.Takeovers != 1 {
		e.Errorf("another's release made takeovers %d, want 1", r.Takeovers)
	}
}
