package storagetest

import (
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

func faultCases() []testCase {
	const why = "Record.Fault set: the record is inserted final failed, with that text as its error. "
	return []testCase{
		{"fault/final", why, faultFinal},
		{"fault/callback", why + "FaultCallback: the failed callback is owed.", faultCallback},
		{"fault/unmatched", why + "It waits for no subscription, so that a callback it owes is always this member's.", faultUnmatched},
		{"fault/expires", why + "FaultExpires: until it expires.", faultExpires},
		{"fault/dedup", "Records that are there already are skipped.", faultDedup},
	}
}

// faulty returns a record that is to be stored as failed.
func (e *env) faulty(subscriber, why string, callback bool) *storage.Record {
	rec := e.delivery("g", subscriber)
	rec.Fault, rec.FaultExpires, rec.FaultCallback = why, time.Hour, callback
	return rec
}

func faultFinal(e *env) {
	m := e.join(storage.Inbox)
	rec := e.faulty("s", "cannot be read", false)
	e.wantRows("fresh", e.accept(m, rec), rec)
	e.wantRows("due", e.due(m, allOf("g", "s")))
	e.staysFinal(m, rec)
}

func faultCallback(e *env) {
	m := e.join(storage.Inbox)
	plain, rec := e.delivery("g", "s"), e.faulty("s", "a\x00b \xff", true)
	e.wantSet("fresh", e.accept(m, plain, rec), plain, rec)
	r := e.mustRow(m, rec)
	e.checkContent(r, rec)
	if r.Status != storage.Failed || !r.Final || r.LastError != storage.CleanError(rec.Fault) || r.Owner != m.Number() || r.Retries != 0 {
		e.Errorf("a faulty row whose callback is owed: %+v", *r)
	}
	e.wantSet("due", e.due(m, allOf("g", "s")), plain, rec)
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.CallbackDone})
	e.staysFinalBeside(m, rec, plain)
}

// staysFinalBeside checks that a row has ended and its neighbour has not.
func (e *env) staysFinalBeside(m storage.Member, rec, neighbour *storage.Record) {
	e.Helper()
	e.wantRows("after the callback", e.due(m, allOf("g", "s")), neighbour)
	e.wantRows("accepted once more", e.accept(m, again(rec)))
}

func faultUnmatched(e *env) {
	m := e.join(storage.Inbox)
	silent, owed := e.faulty("", "no name", false), e.faulty("", "no name", true)
	e.accept(m, silent, owed)
	waiting, err := m.Unmatched(e.op(), []string{"g"}, 0, 10)
	e.must(err, "unmatched")
	e.wantRows("waiting for a subscription", waiting)
	for _, rec := range []*storage.Record{silent, owed} {
		got, err := m.Split(e.op(), rec, e.delivery("g", "s"))
		e.must(err, "split")
		e.wantRows("split of a final row", got)
	}
	if r := e.mustRow(m, owed); !r.Final || r.Owner != m.Number() {
		e.Errorf("a faulty unmatched row whose callback is owed: %+v", *r)
	}
	e.mustSettle(m, storage.Outcome{ID: owed.ID, Kind: storage.CallbackDone})
	e.wantRows("after the callback", e.due(m, byID(owed, silent)))
}

func faultExpires(e *env) {
	m := e.join(storage.Inbox)
	soon, owed, later := e.faulty("s", "x", false), e.faulty("s", "x", true), e.faulty("s", "x", false)
	soon.FaultExpires, owed.FaultExpires = time.Millisecond, time.Millisecond
	e.accept(m, soon, owed, later)
	deleted := 0
	e.eventually("the expired row is purged", func() bool {
		deleted += e.purge(storage.Inbox, 10)
		return deleted > 0
	})
	deleted += e.purge(storage.Inbox, 10)
	if deleted != 1 {
		e.Errorf("%d rows were purged, want the expired one whose callback is not owed", deleted)
	}
	e.mustRow(m, owed)
	next := again(soon)
	fresh := e.accept(m, next, again(owed), again(later))
	if !slices.Equal(idsOf(fresh), []storage.ID{next.ID}) {
		e.Errorf("after the purge %d records are new, want the purged one", len(fresh))
	}
}

func faultDedup(e *env) {
	m := e.join(storage.Inbox)
	rec := e.accepted(m)
	twin := again(rec)
	twin.Fault, twin.FaultExpires = "x", time.Hour
	e.wantRows("a faulty redelivery of a good message", e.accept(m, twin))
	e.wantRows("still due", e.due(m, allOf("g", "s")), rec)
}
