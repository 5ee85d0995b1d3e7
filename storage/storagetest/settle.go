package storagetest

import (
	"slices"
	"strings"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
)

func settleCases() []testCase {
	const errorWhy = `Error: cut to 4 KiB and cleaned by the storage; "" keeps the last one.`
	return []testCase{
		{"settle/succeed", "Succeed: final. After: until it expires.", settleSucceed},
		{"settle/succeed-deleted", "Succeed: After negative: the row is deleted.", settleDeleted},
		{"settle/retry", "Retry: status failed, due again After; nobody else takes it meanwhile. Attempt: retries becomes this; 0: nothing is counted.", settleRetry},
		{"settle/twice", "An outcome may be stored twice: nothing is counted twice then. Attempt: retries becomes this.", settleTwice},
		{"settle/retry-at-once", "Retry: status failed, due again After.", settleRetryNow},
		{"settle/postpone", "Postpone: status unchanged, due again After.", settlePostpone},
		{"settle/fail", "Fail: final failed. Nothing more is due.", settleFail},
		{"settle/fail-callback", "Fail: final failed. Callback: due now, so that the callback is made. CallbackDone: the callback of a final failed row was made.", settleCallback},
		{"settle/takeovers", "All but Release set takeovers to 0.", settleTakeovers},
		{"settle/error-clean", errorWhy, settleErrorClean},
		{"settle/error-kept", errorWhy, settleErrorKept},
		{"settle/not-owned", "It returns the ids whose row was not this member's any more, or was final already.", settleNotOwned},
		{"settle/mixed-batch", "It returns the ids whose row was not this member's any more, or was final already.", settleMixed},
		{"settle/none", "Settle stores outcomes: of none, nothing.", settleNone},
	}
}

func settleSucceed(e *env) {
	out, in := e.join(storage.Outbox), e.join(storage.Inbox)
	sent, received := given(e.message(out)), e.accepted(in)
	e.publish(sent)
	e.mustSettle(out, succeed(sent))
	e.mustSettle(in, succeed(received))
	e.wantRows("outbox by id", e.due(out, byID(sent)))
	e.wantRows("outbox by lane", e.due(out, allOf("", "")))
	e.wantRows("inbox by id", e.due(in, byID(received)))
	tx := e.begin()
	wantDuplicate(e, tx.Append(e.op(), e.twin(sent)))
	e.must(tx.Rollback(), "rollback")
	e.wantRows("accepted although it was handled", e.accept(in, again(received)))
	for _, box := range []storage.Box{storage.Outbox, storage.Inbox} {
		if n := e.purge(box, 10); n != 0 {
			e.Errorf("purge deleted %d %v rows that expire in an hour", n, box)
		}
	}
}

func settleDeleted(e *env) {
	m, other := e.join(storage.Outbox), e.join(storage.Outbox)
	rec, foreign := given(e.message(m)), e.message(m)
	e.publish(rec, foreign)
	gone := func(r *storage.Record) storage.Outcome {
		return storage.Outcome{ID: r.ID, Kind: storage.Succeed, After: -1}
	}
	e.wantIDs("deleted by one that does not own it", e.settle(other, gone(foreign)), foreign.ID)
	e.mustSettle(m, gone(rec))
	e.wantRows("after the deletion", e.due(m, allOf("", "")), foreign)
	e.wantIDs("deleted twice", e.settle(m, gone(rec)), rec.ID)
	e.publish(e.twin(rec)) // the id is free again
	e.wantSet("with the same id again", e.due(m, allOf("", "")), foreign, rec)
}

// dueAgain checks when a row is due again after an outcome.
func (e *env) dueAgain(m storage.Member, rec *storage.Record, o storage.Outcome) *storage.Record {
	e.Helper()
	o.ID, o.After = rec.ID, 2*e.cfg.lease
	begun := time.Now()
	e.mustSettle(m, o)
	e.mustRow(m, rec)
	e.eventually("the row is due again", func() bool { return slices.Contains(idsOf(e.due(m, allOf("", ""))), rec.ID) })
	if waited := time.Since(begun); waited < o.After-coarse {
		e.Errorf("due again after %v, want not before %v", waited, o.After)
	}
	return e.mustRow(m, rec)
}

func settleRetry(e *env) {
	m, other := e.join(storage.Outbox), e.join(storage.Outbox)
	rec := e.published(m)
	r := e.dueAgain(m, rec, storage.Outcome{Kind: storage.Retry, Attempt: 1, Error: "no answer"})
	if r.Status != storage.Failed || r.Final || r.Retries != 1 || r.LastError != "no answer" || r.Owner != m.Number() {
		e.Errorf("after a counted retry: %+v", *r)
	}
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Retry, After: time.Hour})
	r = e.mustRow(m, rec)
	if r.Status != storage.Failed || r.Retries != 1 {
		e.Errorf("after a retry that does not count: %+v", *r)
	}
	e.wantRows("due while it waits", e.due(m, allOf("", "")))
	e.wantRows("taken by another while it waits", e.takeOver(other, byID(rec)))
}

func settleRetryNow(e *env) {
	m := e.join(storage.Outbox)
	rec := e.published(m)
	for attempt := 1; attempt <= 3; attempt++ {
		e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Retry, Attempt: attempt, Error: "again"})
		got := e.due(m, allOf("", ""))
		e.wantRows("due at once", got, rec)
		if len(got) == 1 && got[0].Retries != attempt {
			e.Errorf("retries %d after %d attempts", got[0].Retries, attempt)
		}
	}
}

func settleTwice(e *env) {
	m := e.join(storage.Inbox)
	rec := e.accepted(m)
	for _, attempt := range []int{1, 2, 5, 0} {
		want := max(attempt, e.mustRow(m, rec).Retries)
		o := storage.Outcome{ID: rec.ID, Kind: storage.Retry, Attempt: attempt, Error: "no answer"}
		for range 2 {
			e.mustSettle(m, o)
			if r := e.mustRow(m, rec); r.Retries != want {
				e.Errorf("retries %d after attempt %d, want %d", r.Retries, attempt, want)
			}
		}
	}
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Fail, Attempt: 6, After: time.Hour, Callback: true})
	if r := e.mustRow(m, rec); r.Retries != 6 {
		e.Errorf("retries %d of a row whose sixth attempt was the last", r.Retries)
	}
}

func settlePostpone(e *env) {
	m := e.join(storage.Outbox)
	fresh, retried := e.published(m), e.published(m)
	e.mustSettle(m, storage.Outcome{ID: retried.ID, Kind: storage.Retry, Attempt: 1, Error: "no answer"})
	for rec, want := range map[*storage.Record]storage.Status{fresh: storage.Scheduled, retried: storage.Failed} {
		before := e.mustRow(m, rec)
		r := e.dueAgain(m, rec, storage.Outcome{Kind: storage.Postpone})
		if r.Status != want || r.Retries != before.Retries || r.LastError != before.LastError || r.Final {
			e.Errorf("after a postponement: %+v, was %+v", *r, *before)
		}
	}
}

func settleFail(e *env) {
	m := e.join(storage.Inbox)
	rec := e.accepted(m)
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Fail, Attempt: 1, After: time.Hour, Error: "refused"})
	e.wantRows("by lane", e.due(m, allOf("g", "s")))
	e.wantRows("by id", e.due(m, byID(rec)))
	e.wantRows("accepted although it has failed", e.accept(m, again(rec)))
	if n := e.purge(storage.Inbox, 10); n != 0 {
		e.Errorf("purge deleted %d rows that expire in an hour", n)
	}
}

func settleCallback(e *env) {
	m, other := e.join(storage.Inbox), e.join(storage.Inbox)
	rec := e.accepted(m)
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Fail, Attempt: 1, After: time.Hour, Callback: true, Error: "refused"})
	got := e.due(m, allOf("g", "s"))
	e.wantRows("due for its callback", got, rec)
	for _, r := range got {
		if r.Status != storage.Failed || !r.Final || r.Retries != 1 || r.LastError != "refused" || r.Owner != m.Number() {
			e.Errorf("a row whose callback is owed: %+v", *r)
		}
	}
	done := storage.Outcome{ID: rec.ID, Kind: storage.CallbackDone}
	e.wantIDs("callback done by another", e.settle(other, done), rec.ID)
	e.wantRows("still due for its callback", e.due(m, allOf("g", "s")), rec)
	e.mustSettle(m, done)
	e.wantRows("after the callback", e.due(m, byID(rec)))
	e.wantIDs("callback done twice", e.settle(m, done), rec.ID)
}

func settleTakeovers(e *env) {
	m, mortal := e.join(storage.Outbox), e.mortal(storage.Outbox)
	recs := e.messages(3, mortal)
	e.publish(recs...)
	e.inherit(m, recs...)
	e.claim(m, recs...)
	e.mustSettle(m,
		storage.Outcome{ID: recs[0].ID, Kind: storage.Retry},
		storage.Outcome{ID: recs[1].ID, Kind: storage.Postpone},
		storage.Outcome{ID: recs[2].ID, Kind: storage.Fail, After: time.Hour, Callback: true})
	for i, what := range []string{"retry", "postpone", "fail"} {
		if r := e.mustRow(m, recs[i]); r.Takeovers != 0 {
			e.Errorf("takeovers %d after %s, want 0", r.Takeovers, what)
		}
	}
}

func settleErrorClean(e *env) {
	m := e.join(storage.Outbox)
	rec := e.published(m)
	for _, text := range []string{
		"a\x00b", "\xff\xfe broken \xc3", strings.Repeat("é", 5000), strings.Repeat("x", storage.MaxErrorBytes),
		strings.Repeat("x", storage.MaxErrorBytes-1) + "é", "quote'\"\\` ? $1 %s", "ошибка 🎉",
	} {
		for _, kind := range []storage.OutcomeKind{storage.Retry, storage.Fail} {
			e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: kind, Error: text, After: time.Hour, Callback: true})
			if r := e.mustRow(m, rec); r.LastError != storage.CleanError(text) {
				e.Errorf("error text %.20q… is stored as %.20q… (%d bytes)", text, r.LastError, len(r.LastError))
			}
		}
		e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.CallbackDone})
		rec = e.published(m)
	}
}

func settleErrorKept(e *env) {
	m := e.join(storage.Outbox)
	rec := e.published(m)
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Retry, Error: "the first"})
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Retry})
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Postpone})
	if r := e.mustRow(m, rec); r.LastError != "the first" {
		e.Errorf("error text %q, want the one before", r.LastError)
	}
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Fail, After: time.Hour, Callback: true})
	if r := e.mustRow(m, rec); r.LastError != "the first" {
		e.Errorf("error text %q, want the one before", r.LastError)
	}
}

func settleNotOwned(e *env) {
	m, other := e.join(storage.Outbox), e.join(storage.Outbox)
	mine, free := e.published(m), e.published(nil)
	unknown := e.message(m)
	for kind := storage.Succeed; kind <= storage.Fail; kind++ {
		var outcomes []storage.Outcome
		for _, rec := range []*storage.Record{mine, free, unknown} {
			outcomes = append(outcomes, storage.Outcome{ID: rec.ID, Kind: kind, After: time.Hour, Attempt: 1, Error: "x"})
		}
		e.wantIDs("lost", e.settle(other, outcomes...), mine.ID, free.ID, unknown.ID)
	}
	if r := e.mustRow(m, mine); r.Status != storage.Scheduled || r.Retries != 0 || r.LastError != "" {
		e.Errorf("another's settle changed the row: %+v", *r)
	}
	e.wantRows("still due", e.due(m, allOf("", "")), mine)
	e.wantRows("still anyone's", e.takeOver(m, allOf("", "")), free)
}

func settleMixed(e *env) {
	m, other := e.join(storage.Outbox), e.join(storage.Outbox)
	var (
		recs, open []*storage.Record
		outcomes   []storage.Outcome
		lost       []storage.ID
	)
	for i := range 300 {
		owner := m
		if i%5 == 4 {
			owner = other
		}
		rec := e.message(owner)
		recs = append(recs, rec)
		o := storage.Outcome{ID: rec.ID, Kind: storage.OutcomeKind(i%4) + storage.Succeed, After: time.Hour, Attempt: i % 3, Error: rec.ID.String()}
		switch {
		case owner == other:
			lost = append(lost, rec.ID)
		case o.Kind == storage.Retry || o.Kind == storage.Postpone:
			open = append(open, rec)
		}
		outcomes = append(outcomes, o)
	}
	id := storage.ID(ids.New())
	lost = append(lost, id)
	outcomes = append(outcomes, storage.Outcome{ID: id, Kind: storage.Succeed, After: time.Hour})
	e.publish(recs...)
	e.wantIDs("lost", e.settle(m, outcomes...), lost...)
	e.wantSet("unfinished", e.due(m, byID(recs...)), open...)
	for i, o := range outcomes[:len(recs)] {
		r := e.row(m, recs[i])
		if r == nil {
			continue
		}
		want := storage.Record{Status: storage.Scheduled}
		if o.Kind == storage.Retry {
			want = storage.Record{Status: storage.Failed, LastError: o.Error, Retries: o.Attempt}
		}
		if r.Status != want.Status || r.LastError != want.LastError || r.Retries != want.Retries {
			e.Errorf("outcome %+v made %+v", o, *r)
		}
	}
}

func settleNone(e *env) {
	m := e.join(storage.Inbox)
	e.mustSettle(m)
	e.wantRows("accepted of nothing", e.accept(m))
}
