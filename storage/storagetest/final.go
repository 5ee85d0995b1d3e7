package storagetest

import (
	"time"

	"github.com/capbus/gocap/storage"
)

func finalCases() []testCase {
	const why = "A final state is left only by an operator."
	return []testCase{
		{"final/succeeded", why, finalSucceeded},
		{"final/failed", why, finalFailed},
		{"final/callback-owed", "Every change is conditional on the row not being final.", finalCallbackOwed},
		{"final/not-yet", "CallbackDone: the callback of a final failed row was made.", finalNotYet},
	}
}

// outcomesOf returns every outcome that a row which is not final may have.
func outcomesOf(rec *storage.Record) []storage.Outcome {
	var all []storage.Outcome
	for kind := storage.Succeed; kind <= storage.Fail; kind++ {
		all = append(all, storage.Outcome{ID: rec.ID, Kind: kind, Attempt: 7, After: time.Hour, Callback: true, Error: "late"})
	}
	return append(all, storage.Outcome{ID: rec.ID, Kind: storage.Succeed, After: -1})
}

// staysFinal checks that nothing changes a final row with nothing more to do.
func (e *env) staysFinal(m storage.Member, rec *storage.Record) {
	e.Helper()
	for _, o := range append(outcomesOf(rec), storage.Outcome{ID: rec.ID, Kind: storage.CallbackDone}) {
		e.wantIDs("lost", e.settle(m, o), rec.ID)
		e.wantRows("has something to do", e.due(m, byID(rec)))
		e.wantRows("is due", e.due(m, allOf("g", "s")))
	}
	e.wantRows("claimed", e.claim(m, rec))
	e.wantRows("taken over", e.takeOver(m, byID(rec)))
	e.wantRows("accepted, so the row is gone", e.accept(m, again(rec)))
}

func finalSucceeded(e *env) {
	m := e.join(storage.Inbox)
	rec := e.accepted(m)
	e.mustSettle(m, succeed(rec))
	e.staysFinal(m, rec)
}

func finalFailed(e *env) {
	m := e.join(storage.Inbox)
	rec := e.accepted(m)
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Fail, After: time.Hour})
	e.staysFinal(m, rec)
}

func finalCallbackOwed(e *env) {
	m := e.join(storage.Inbox)
	rec := e.accepted(m)
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Fail, After: time.Hour, Callback: true, Error: "first"})
	for _, o := range outcomesOf(rec) {
		e.wantIDs("lost", e.settle(m, o), rec.ID)
		if r := e.mustRow(m, rec); !r.Final || r.Status != storage.Failed || r.LastError != "first" || r.Retries != 0 {
			e.Errorf("outcome %d changed a final row: %+v", o.Kind, *r)
		}
	}
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.CallbackDone})
	e.staysFinal(m, rec)
}

// finalNotYet: CallbackDone must not end a row that is still to be tried.
func finalNotYet(e *env) {
	m := e.join(storage.Inbox)
	rec := e.accepted(m)
	_, err := m.Settle(e.op(), storage.Outcome{ID: rec.ID, Kind: storage.CallbackDone})
	e.must(err, "settle")
	e.wantRows("still due", e.due(m, allOf("g", "s")), rec)
}
