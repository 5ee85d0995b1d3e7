package storagetest

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
)

func operateCases() []testCase {
	const requeue = "Requeue makes a row that is final, or due in the future, due now, for anyone, as if it had never been tried: scheduled, retries and takeovers 0. "
	const change = "Change does a to the rows f.IDs that match f and allow it, and returns their ids. The others stay as they were. "
	return []testCase{
		{"operate/requeue", requeue, operateRequeue},
		{"operate/requeue-inbox", requeue, operateRequeueInbox},
		{"operate/requeue-waiting", requeue, operateRequeueWaiting},
		{"operate/requeued-settle", requeue + "What its owner says late changes nothing.", operateLate},
		{"operate/requeue-unmatched", requeue + "One that matched no subscription waits for one again.", operateUnmatched},
		{"operate/in-work", change + "A row that is due or in hand is refused, and so is a final one that owes its callback.", operateInWork},
		{"operate/cancel", "Cancel deletes a delayed row that is not due yet.", operateCancel},
		{"operate/cancel-race", "Cancel deletes a delayed row that is not due yet: it is claimed or cancelled, never both.", operateRace},
		{"operate/delete", "Delete deletes a final row with nothing more to do.", operateDelete},
		{"operate/filter", change, operateFilter},
		{"operate/refuses", "Row.Refuses: what an adapter's Change does is conditional on the same.", operateRefuses},
	}
}

func (e *env) operate(o storage.Operator, a storage.Action, box storage.Box, recs ...*storage.Record) []storage.ID {
	e.Helper()
	done, err := o.Change(e.op(), a, storage.Filter{Box: box, IDs: idsOf(recs)})
	e.must(err, "%v", a)
	return done
}

// wantFresh checks that a row is as if it had never been tried.
func (e *env) wantFresh(r *storage.Record, like *storage.Record) {
	e.Helper()
	if r.Status != storage.Scheduled || r.Final || r.Retries != 0 || r.Takeovers != 0 {
		e.Errorf("requeued, the row is %v, final %t, retries %d, takeovers %d", r.Status, r.Final, r.Retries, r.Takeovers)
	}
	e.checkContent(r, like)
}

func operateRequeue(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m, heir := e.join(storage.Outbox), e.join(storage.Outbox)
	recs := e.inEveryState(m)
	failed, sent := recs[storage.StateFailed], recs[storage.StateSucceeded]
	e.wantIDs("requeued", e.operate(o, storage.Requeue, storage.Outbox, failed, sent), failed.ID, sent.ID)
	for _, rec := range []*storage.Record{failed, sent} {
		r := e.mustRead(o, storage.Outbox, rec.ID)
		e.wantFresh(r.Record, rec)
		if r.Owner != 0 || r.Position.DueAt.IsZero() || r.DueIn > 0 || !r.ExpiresAt.IsZero() {
			e.Errorf("requeued, the row has owner %d, is due in %v, expires %v", r.Owner, r.DueIn, r.ExpiresAt)
		}
	}
	e.wantIDs("requeued again, though it is due", e.operate(o, storage.Requeue, storage.Outbox, failed))
	e.wantRows("of the old owner", e.due(m, allOf("", "")), recs[storage.StateScheduled])
	got := e.takeOver(heir, allOf("", ""))
	e.wantRows("taken", got, failed, sent)
	for i, r := range got {
		e.wantFresh(r, []*storage.Record{failed, sent}[i])
	}
	e.mustSettle(heir, succeed(failed), storage.Outcome{ID: sent.ID, Kind: storage.Fail, Attempt: 1, After: time.Hour})
	e.wantIDs("requeued once more", e.operate(o, storage.Requeue, storage.Outbox, failed, sent), failed.ID, sent.ID)
	e.wantSet("taken once more", e.takeOver(m, allOf("", "")), failed, sent)
}

func operateRequeueInbox(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Inbox)
	rec := e.accepted(m)
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Fail, Attempt: 1, After: time.Hour, Error: "no"})
	e.wantIDs("requeued", e.operate(o, storage.Requeue, storage.Inbox, rec), rec.ID)
	e.wantRows("a redelivery of it", e.accept(m, again(rec)))
	got := e.takeOver(m, allOf("g", "s"))
	e.mustRows("taken", got, rec)
	e.wantFresh(got[0], rec)
	e.mustSettle(m, succeed(rec))
	e.staysFinal(m, rec)
}

func operateRequeueWaiting(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Outbox)
	recs := e.inEveryState(m)
	delayed, retrying := recs[storage.StateDelayed], recs[storage.StateRetrying]
	e.wantIDs("requeued", e.operate(o, storage.Requeue, storage.Outbox, delayed, retrying), delayed.ID, retrying.ID)
	got := e.takeOver(m, allOf("", ""))
	e.wantRows("taken", got, delayed, retrying)
	for i, r := range got {
		e.wantFresh(r, []*storage.Record{delayed, retrying}[i])
	}
	soon := e.published(m)
	e.mustSettle(m, storage.Outcome{ID: soon.ID, Kind: storage.Retry, Attempt: 1, After: storage.RequeueMargin / 2})
	e.wantIDs("requeued, though it is due soon", e.operate(o, storage.Requeue, storage.Outbox, soon))
}

func operateLate(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Inbox)
	rec := e.accepted(m)
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Retry, Attempt: 1, After: time.Hour})
	e.wantIDs("requeued", e.operate(o, storage.Requeue, storage.Inbox, rec), rec.ID)
	for _, out := range outcomesOf(rec) {
		e.wantIDs("lost", e.settle(m, out), rec.ID)
	}
	e.wantFresh(e.mustRead(o, storage.Inbox, rec.ID).Record, rec)
}

func operateUnmatched(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Inbox)
	rec := e.faulty("", "nobody", false)
	e.accept(m, rec)
	e.wantIDs("requeued", e.operate(o, storage.Requeue, storage.Inbox, rec), rec.ID)
	waiting := e.unmatched(m, 0, 10, "g")
	e.mustRows("waiting", waiting, rec)
	into := e.delivery("g", "s")
	got, err := m.Split(e.op(), waiting[0], into)
	e.must(err, "split")
	e.wantRows("split", got, into)
}

func operateInWork(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Outbox)
	due, orphan, late, owed := e.published(m), e.published(nil), e.delayedDue(m), e.published(m)
	e.mustSettle(m, storage.Outcome{ID: owed.ID, Kind: storage.Fail, After: time.Hour, Callback: true})
	for a := storage.Requeue; a <= storage.Delete; a++ {
		e.wantIDs(a.String()+" of rows in work", e.operate(o, a, storage.Outbox, due, orphan, late, owed))
	}
	for _, rec := range []*storage.Record{due, late, owed} {
		if r := e.mustRow(m, rec); r.Owner != m.Number() {
			e.Errorf("a refused row has another owner")
		}
	}
	e.mustSettle(m, storage.Outcome{ID: owed.ID, Kind: storage.CallbackDone})
	e.wantIDs("after its callback", e.operate(o, storage.Requeue, storage.Outbox, owed), owed.ID)
}

func operateCancel(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Outbox)
	recs := e.inEveryState(m)
	anyone := e.message(nil)
	anyone.Delay = time.Hour
	e.publish(anyone)
	given := []*storage.Record{anyone}
	for _, rec := range recs {
		given = append(given, rec)
	}
	delayed := recs[storage.StateDelayed]
	e.wantIDs("cancelled", e.operate(o, storage.Cancel, storage.Outbox, given...), delayed.ID, anyone.ID)
	e.wantIDs("cancelled again", e.operate(o, storage.Cancel, storage.Outbox, delayed))
	for st, rec := range recs {
		if gone := e.read(o, storage.Outbox, rec.ID) == nil; gone != (st == storage.StateDelayed) {
			e.Errorf("a %v row is gone: %t", st, gone)
		}
	}
}

// operateRace: a claim and a cancel at the moment at which the row is due.
func operateRace(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Outbox)
	for range 20 {
		recs := e.messages(10, m)
		for i, rec := range recs {
			rec.Delay = time.Duration(i) * time.Millisecond
			if i == 0 {
				rec.Delay = time.Microsecond
			}
		}
		e.publish(recs...)
		var claimed, cancelled atomic.Pointer[[]storage.ID]
		var errs [2]error
		together(2, func(i int) {
			all, done := []storage.ID(nil), map[storage.ID]bool{}
			for n := 0; n < 100 && errs[i] == nil; n++ {
				var got []storage.ID
				if i == 0 {
					var rows []*storage.Record
					rows, errs[i] = m.Claim(e.Context(), recs...)
					got = idsOf(rows)
				} else {
					got, errs[i] = o.Change(e.Context(), storage.Cancel, storage.Filter{Box: storage.Outbox, IDs: idsOf(recs[n%10:])})
				}
				for _, id := range got {
					if done[id] {
						errs[i] = errors.New("a row was changed twice")
					}
					done[id] = true
				}
				all = append(all, got...)
			}
			if i == 0 {
				claimed.Store(&all)
			} else {
				cancelled.Store(&all)
			}
		})
		e.must(errs[0], "claim")
		e.must(errs[1], "cancel")
		for _, id := range *claimed.Load() {
			if slices.Contains(*cancelled.Load(), id) {
				e.Fatalf("row %v was claimed, and cancelled", id)
			}
			e.mustRead(o, storage.Outbox, id)
		}
		for _, id := range *cancelled.Load() {
			if e.read(o, storage.Outbox, id) != nil {
				e.Fatalf("row %v was cancelled, and is there", id)
			}
		}
	}
}

func operateDelete(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Outbox)
	recs := e.inEveryState(m)
	given := []*storage.Record{{ID: ids.New()}}
	for _, rec := range recs {
		given = append(given, rec)
	}
	e.wantIDs("deleted", e.operate(o, storage.Delete, storage.Outbox, given...), recs[storage.StateFailed].ID, recs[storage.StateSucceeded].ID)
	e.wantRows("left", e.all(o, storage.Filter{Box: storage.Outbox}),
		recs[storage.StateScheduled], recs[storage.StateDelayed], recs[storage.StateRetrying])
	in := e.join(storage.Inbox)
	rec := e.accepted(in)
	e.mustSettle(in, succeed(rec))
	e.wantIDs("deleted in the other box", e.operate(o, storage.Delete, storage.Outbox, rec))
	e.wantIDs("deleted", e.operate(o, storage.Delete, storage.Inbox, rec), rec.ID)
	twin := again(rec)
	e.wantRows("new after it", e.accept(in, twin), twin)
}

func operateFilter(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Outbox)
	recs := e.inEveryState(m)
	failed, sent := recs[storage.StateFailed], recs[storage.StateSucceeded]
	f := storage.Filter{Box: storage.Outbox, IDs: []storage.ID{sent.ID, failed.ID}, States: []storage.State{storage.StateFailed}}
	for _, wrong := range []func(f *storage.Filter){
		func(f *storage.Filter) { f.Topic = "other" }, func(f *storage.Filter) { f.Version = "other" },
		func(f *storage.Filter) { f.IDs = nil }, func(f *storage.Filter) { f.MessageID = sent.ID.String() },
	} {
		g := f
		wrong(&g)
		done, err := o.Change(e.op(), storage.Delete, g)
		e.must(err, "delete")
		e.wantIDs("deleted by a filter that does not match", done)
	}
	done, err := o.Change(e.op(), storage.Delete, f)
	e.must(err, "delete")
	e.wantIDs("deleted", done, failed.ID)
	e.mustRead(o, storage.Outbox, sent.ID)
}

// operateRefuses: a copy of every kind of row for each action.
func operateRefuses(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Outbox)
	for a := storage.Requeue; a <= storage.Delete; a++ {
		var recs []*storage.Record
		for _, rec := range e.inEveryState(m) {
			recs = append(recs, rec)
		}
		late, owed := e.delayedDue(m), e.published(m)
		e.mustSettle(m, storage.Outcome{ID: owed.ID, Kind: storage.Fail, After: time.Hour, Callback: true})
		for _, rec := range append(recs, late, owed) {
			why := e.mustRead(o, storage.Outbox, rec.ID).Refuses(a)
			if done := e.operate(o, a, storage.Outbox, rec); (len(done) == 1) != (why == nil) {
				e.Errorf("%v changes %d rows of which the row says %v", a, len(done), why)
			}
		}
	}
}
