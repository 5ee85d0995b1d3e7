package storagetest

import (
	"time"

	"github.com/capbus/gocap/storage"
)

func purgeCases() []testCase {
	const why = "Purge deletes up to p.Limit rows of a box that are final, with nothing more to do, and have expired. "
	return []testCase{
		{"purge/exactly", why, purgeExactly},
		{"purge/callback-owed", why + "failed, final, due is not gone before its callback was made.", purgeCallback},
		{"purge/limit", why + "It returns the number of rows deleted, so that a full batch is followed by the next at once.", purgeLimit},
		{"purge/box-and-version", why, purgeScope},
	}
}

// purged purges until so many rows are gone in all, and then once more.
func (e *env) purged(box storage.Box, want int) {
	e.Helper()
	got := 0
	e.eventually("expired rows are purged", func() bool {
		got += e.purge(box, 100)
		return got >= want
	})
	if got += e.purge(box, 100); got != want {
		e.Errorf("purge deleted %d %v rows, want %d", got, box, want)
	}
}

func purgeExactly(e *env) {
	m := e.join(storage.Inbox)
	recs := e.deliveries(7, "g", "s")
	e.accept(m, recs...)
	soon, later := time.Millisecond, time.Hour
	e.mustSettle(m,
		storage.Outcome{ID: recs[0].ID, Kind: storage.Succeed, After: soon},
		storage.Outcome{ID: recs[1].ID, Kind: storage.Fail, After: soon},
		storage.Outcome{ID: recs[2].ID, Kind: storage.Succeed, After: later},
		storage.Outcome{ID: recs[3].ID, Kind: storage.Fail, After: later},
		storage.Outcome{ID: recs[4].ID, Kind: storage.Retry, After: soon},
		storage.Outcome{ID: recs[5].ID, Kind: storage.Postpone, After: soon})
	waiting := e.waiting(m)
	e.purged(storage.Inbox, 2)
	e.wantSet("unfinished", e.due(m, byID(recs...)), recs[4], recs[5], recs[6])
	e.wantRows("unmatched", e.unmatched(m, 0, 10, "g"), waiting)
	var twins []*storage.Record
	for _, rec := range recs {
		twins = append(twins, again(rec))
	}
	e.wantSet("new after the purge", e.accept(m, twins...), twins[0], twins[1])
}

func purgeCallback(e *env) {
	m := e.join(storage.Outbox)
	owed, plain := e.published(m), e.published(m)
	e.mustSettle(m,
		storage.Outcome{ID: owed.ID, Kind: storage.Fail, After: time.Millisecond, Callback: true},
		storage.Outcome{ID: plain.ID, Kind: storage.Fail, After: time.Millisecond})
	e.purged(storage.Outbox, 1)
	if r := e.mustRow(m, owed); !r.Final {
		e.Errorf("the row whose callback is owed is not final")
	}
	e.mustSettle(m, storage.Outcome{ID: owed.ID, Kind: storage.CallbackDone})
	e.purged(storage.Outbox, 1)
}

func purgeLimit(e *env) {
	m := e.join(storage.Outbox)
	recs := e.messages(5, m)
	e.publish(recs...)
	var outcomes []storage.Outcome
	for _, rec := range recs {
		outcomes = append(outcomes, storage.Outcome{ID: rec.ID, Kind: storage.Succeed, After: time.Millisecond})
	}
	e.mustSettle(m, outcomes...)
	// A sixth one, settled after the others, is the sign that they have expired.
	last := given(e.message(m))
	e.publish(last)
	e.mustSettle(m, storage.Outcome{ID: last.ID, Kind: storage.Succeed, After: time.Millisecond})
	var batches []int
	total := 0
	e.eventually("six rows are purged, at most two at once", func() bool {
		n := e.purge(storage.Outbox, 2)
		if n > 2 {
			e.Fatalf("purge deleted %d rows, the limit is 2", n)
		}
		batches = append(batches, n)
		total += n
		return total >= 6
	})
	if n := e.purge(storage.Outbox, 2); n != 0 || total != 6 {
		e.Errorf("purge deleted %v and %d rows, want six in all", batches, n)
	}
	e.publish(e.twin(last))
}

func purgeScope(e *env) {
	foreign := e.other()
	out, in, fm := e.join(storage.Outbox), e.join(storage.Inbox), foreign.join(storage.Outbox)
	sent, received, theirs := e.published(out), e.accepted(in), foreign.published(fm)
	expired := func(rec *storage.Record) storage.Outcome {
		return storage.Outcome{ID: rec.ID, Kind: storage.Succeed, After: time.Millisecond}
	}
	e.mustSettle(fm, expired(theirs))
	e.mustSettle(in, expired(received))
	e.mustSettle(out, expired(sent))
	e.purged(storage.Outbox, 1)
	e.wantRows("the inbox after a purge of the outbox", e.accept(in, again(received)))
	e.purged(storage.Inbox, 1)
	foreign.purged(storage.Outbox, 1)
}
