package storagetest

import (
	"errors"
	"time"

	"github.com/capbus/gocap/storage"
)

func inboxTxCases() []testCase {
	const why = "Settle stores the outcome of an inbox row of the member as the last statement of the transaction. "
	const lost = "ErrLost: the row is not the member's, or is final."
	return []testCase{
		{"inboxtx/commit", why + "The handler's publishes and the row's success commit in it.", inboxTxCommit},
		{"inboxtx/rollback", why + "What is rolled back has not happened.", inboxTxRollback},
		{"inboxtx/lost", lost + " Then: rollback.", inboxTxLost},
		{"inboxtx/final", lost, inboxTxFinal},
		{"inboxtx/ended", "Settle first makes sure that the database has not ended the transaction meanwhile (ErrTxDone).", inboxTxEnded},
		{"inboxtx/outcomes", why, inboxTxOutcomes},
		{"inboxtx/duplicate", "ErrDuplicate: nothing was inserted, and the transaction stays usable.", inboxTxDuplicate},
		{"inboxtx/bound", "Value is what Bind accepts: a publish of the handler goes into the inbox transaction.", inboxTxBound},
	}
}

func inboxTxCommit(e *env) {
	in, out := e.join(storage.Inbox), e.join(storage.Outbox)
	rec, msg := e.accepted(in), e.message(out)
	tx := e.begin()
	e.must(tx.Append(e.op(), msg), "append")
	e.must(tx.Settle(e.op(), in, succeed(rec)), "settle")
	e.must(tx.Commit(), "commit")
	e.wantRows("published", e.due(out, allOf("", "")), msg)
	e.staysFinal(in, rec)
}

func inboxTxRollback(e *env) {
	in, out := e.join(storage.Inbox), e.join(storage.Outbox)
	rec, msg := e.accepted(in), e.message(out)
	tx := e.begin()
	e.must(tx.Append(e.op(), msg), "append")
	e.must(tx.Settle(e.op(), in, succeed(rec)), "settle")
	e.must(tx.Rollback(), "rollback")
	e.wantRows("published", e.due(out, allOf("", "")))
	e.wantRows("still due", e.due(in, allOf("g", "s")), rec)
	e.mustSettle(in, succeed(rec))
}

// lostTx settles in a transaction and wants ErrLost; nothing of it remains.
func (e *env) lostTx(in, out storage.Member, rec *storage.Record) {
	e.Helper()
	msg := e.message(out)
	tx := e.begin()
	e.must(tx.Append(e.op(), msg), "append")
	wantLost(e, "settle", tx.Settle(e.op(), in, succeed(rec)))
	e.must(tx.Rollback(), "rollback")
	e.wantRows("published although the row was lost", e.due(out, byID(msg)))
}

func inboxTxLost(e *env) {
	in, heir, out := e.join(storage.Inbox), e.join(storage.Inbox), e.join(storage.Outbox)
	taken, free, unknown := e.accepted(in), e.waiting(in), e.delivery("g", "s")
	e.leave(in)
	e.wantRows("taken over", e.takeOver(heir, byID(taken)), taken)
	for _, rec := range []*storage.Record{taken, free, unknown} {
		e.lostTx(in, out, rec)
	}
	e.wantRows("still the heir's", e.due(heir, allOf("g", "s")), taken)
	e.mustSettle(heir, succeed(taken))
}

func inboxTxFinal(e *env) {
	in, out := e.join(storage.Inbox), e.join(storage.Outbox)
	done, owed := e.accepted(in), e.accepted(in)
	e.mustSettle(in, succeed(done), storage.Outcome{ID: owed.ID, Kind: storage.Fail, After: time.Hour, Callback: true})
	for _, rec := range []*storage.Record{done, owed} {
		e.lostTx(in, out, rec)
	}
	if r := e.mustRow(in, owed); !r.Final || r.Status != storage.Failed {
		e.Errorf("a failed row is now %v, final %t", r.Status, r.Final)
	}
}

func inboxTxEnded(e *env) {
	in := e.join(storage.Inbox)
	for _, finish := range []func(storage.Tx) error{storage.Tx.Commit, storage.Tx.Rollback} {
		rec := e.accepted(in)
		tx := e.begin()
		e.must(finish(tx), "end")
		if err := tx.Settle(e.op(), in, succeed(rec)); !errors.Is(err, storage.ErrTxDone) {
			e.Errorf("settle in a transaction that has ended: %v, want ErrTxDone", err)
		}
		e.wantRows("still due", e.due(in, byID(rec)), rec)
	}
}

func inboxTxOutcomes(e *env) {
	in := e.join(storage.Inbox)
	settle := func(o storage.Outcome) {
		e.Helper()
		tx := e.begin()
		e.must(tx.Settle(e.op(), in, o), "settle")
		e.must(tx.Commit(), "commit")
	}
	rec := e.accepted(in)
	settle(storage.Outcome{ID: rec.ID, Kind: storage.Retry, Attempt: 1, After: time.Hour, Error: "a\x00b"})
	if r := e.mustRow(in, rec); r.Status != storage.Failed || r.Retries != 1 || r.LastError != storage.CleanError("a\x00b") {
		e.Errorf("after a retry: %+v", *r)
	}
	e.wantRows("due while it waits", e.due(in, allOf("g", "s")))
	settle(storage.Outcome{ID: rec.ID, Kind: storage.Fail, Attempt: 2, After: time.Hour, Callback: true, Error: "no"})
	if r := e.mustRow(in, rec); !r.Final || r.Retries != 2 || r.LastError != "no" {
		e.Errorf("after a failure: %+v", *r)
	}
}

func inboxTxDuplicate(e *env) {
	in, out := e.join(storage.Inbox), e.join(storage.Outbox)
	rec, first, other := e.accepted(in), given(e.message(out)), e.message(out)
	e.publish(first)
	tx := e.begin()
	wantDuplicate(e, tx.Append(e.op(), e.twin(first)))
	e.must(tx.Append(e.op(), other), "append after a duplicate")
	e.must(tx.Settle(e.op(), in, succeed(rec)), "settle after a duplicate")
	e.must(tx.Commit(), "commit")
	e.wantRows("published", e.due(out, allOf("", "")), first, other)
	e.staysFinal(in, rec)
}

func inboxTxBound(e *env) {
	in, out := e.join(storage.Inbox), e.join(storage.Outbox)
	rec, msg := e.accepted(in), e.message(out)
	tx := e.begin()
	w, err := e.store.Bind(tx.Value())
	e.must(err, "bind")
	e.must(w.Append(e.op(), msg), "append")
	e.must(tx.Settle(e.op(), in, succeed(rec)), "settle")
	e.must(tx.Rollback(), "rollback")
	e.wantRows("published", e.due(out, byID(msg)))
	e.wantRows("still due", e.due(in, allOf("g", "s")), rec)
}
