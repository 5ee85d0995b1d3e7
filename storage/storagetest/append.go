package storagetest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

func appendCases() []testCase {
	const duplicate = "A record whose GivenID is set may exist already: then nothing of the call is inserted, the error is ErrDuplicate, and the transaction stays usable."
	return []testCase{
		{"append/many", "Append inserts the records with one statement. It sets nothing in them.", appendMany},
		{"append/none", "Append inserts the records: of no records, none.", appendNone},
		{"append/order", "seq is given by the database at INSERT: the order.", appendOrder},
		{"append/delay", "Delay and DueAt: not sent before.", appendDelay},
		{"append/due-at", "DueAt is an instant: no zone, and no change to or from summer time, moves it.", appendDueAt},
		{"append/owner", "Owner: the member that will send it, 0: anyone.", appendOwner},
		{"append/duplicate-committed", duplicate, appendDuplicateCommitted},
		{"append/duplicate-own", duplicate, appendDuplicateOwn},
		{"append/duplicate-same-call", duplicate, appendDuplicateSameCall},
		{"append/duplicate-after-rollback", duplicate, appendDuplicateAfterRollback},
		{"append/duplicate-concurrent", duplicate, appendDuplicateConcurrent},
	}
}

func appendMany(e *env) {
	m := e.join(storage.Outbox)
	recs := e.messages(1000, m)
	before := make([]storage.Record, len(recs))
	for i, rec := range recs {
		before[i] = *rec
	}
	e.publish(recs...)
	for i, rec := range recs {
		if !reflect.DeepEqual(*rec, before[i]) {
			e.Fatalf("Append changed a record: %+v, was %+v", *rec, before[i])
		}
	}
	e.wantSet("published", e.due(m, allOf("", "")), recs...)
}

func appendNone(e *env) {
	tx := e.begin()
	e.must(tx.Append(e.op()), "append of nothing")
	e.must(tx.Commit(), "commit")
}

func appendOrder(e *env) {
	m := e.join(storage.Outbox)
	var recs []*storage.Record
	for range 5 {
		recs = append(recs, e.published(m))
	}
	got := e.due(m, allOf("", ""))
	e.wantRows("published one after another", got, recs...)
	for i := 1; i < len(got); i++ {
		if got[i].Position.Seq <= got[i-1].Position.Seq {
			e.Errorf("seq %d follows %d", got[i].Position.Seq, got[i-1].Position.Seq)
		}
	}
}

func appendDelay(e *env) {
	m := e.join(storage.Outbox)
	delayed, dueAt, past, soon := e.message(m), e.message(m), e.message(m), e.message(m)
	delayed.Delay = time.Hour
	dueAt.DueAt = time.Now().Add(time.Hour)
	past.DueAt = time.Now().Add(-time.Hour)
	soon.Delay = e.cfg.lease
	begun := time.Now()
	e.publish(delayed, dueAt, past, soon)
	for _, rec := range []*storage.Record{delayed, dueAt} {
		r := e.mustRow(m, rec)
		if wait := time.Until(r.Position.DueAt); r.Status != storage.Delayed || wait < 59*time.Minute || wait > 61*time.Minute {
			e.Errorf("a record that is to wait an hour is %v, due in %v", r.Status, wait)
		}
	}
	e.eventually("a record with a short delay becomes due", func() bool {
		due := e.due(m, allOf("", ""))
		return slices.Contains(idsOf(due), soon.ID)
	})
	if waited := time.Since(begun); waited < soon.Delay-coarse {
		e.Errorf("due after %v, want not before %v", waited, soon.Delay)
	}
	e.wantSet("due", e.due(m, allOf("", "")), past, soon)
}

// appendDueAt takes moments about a change of the clocks. In that hour of autumn
// two instants have one time of the day.
func appendDueAt(e *env) {
	m := e.join(storage.Outbox)
	summer, winter := time.FixedZone("EDT", -4*3600), time.FixedZone("EST", -5*3600)
	year := time.Now().Year() + 2
	for _, at := range []time.Time{
		time.Date(year, time.March, 14, 1, 59, 59, 999_999_000, winter),
		time.Date(year, time.March, 14, 2, 30, 0, 0, winter),
		time.Date(year, time.March, 14, 3, 30, 0, 0, summer),
		time.Date(year, time.November, 7, 1, 30, 0, 0, summer),
		time.Date(year, time.November, 7, 1, 30, 0, 0, winter),
		time.Date(year, time.November, 7, 1, 30, 0, 0, time.Local),
	} {
		rec := e.message(m)
		rec.DueAt = at
		e.publish(rec)
		if got := e.mustRow(m, rec).Position.DueAt; got.Sub(at).Abs() > coarse {
			e.Errorf("due at %v, want %v", got.UTC(), at.UTC())
		}
	}
}

func appendOwner(e *env) {
	m, other := e.join(storage.Outbox), e.join(storage.Outbox)
	mine, theirs := e.published(m), e.published(other)
	free := e.published(nil)
	e.wantRows("rows of the first", e.due(m, allOf("", "")), mine)
	e.wantRows("rows of the other", e.due(other, allOf("", "")), theirs)
	if r := e.mustRow(m, mine); r.Owner != m.Number() {
		e.Errorf("owner %d, want %d", r.Owner, m.Number())
	}
	e.wantRows("rows of nobody", e.takeOver(m, allOf("", "")), free)
}

// given marks a record's id as the caller's.
func given(rec *storage.Record) *storage.Record {
	rec.GivenID = true
	return rec
}

// twin returns another record with the same given id.
func (e *env) twin(rec *storage.Record) *storage.Record {
	c := *rec
	c.GivenID = true
	c.Body = []byte("the second one")
	return &c
}

func wantDuplicate(e *env, err error) {
	e.Helper()
	if !errors.Is(err, storage.ErrDuplicate) {
		e.Fatalf("append of an id that exists: %v, want ErrDuplicate", err)
	}
}

func appendDuplicateCommitted(e *env) {
	m := e.join(storage.Outbox)
	first, before, beside, after := given(e.message(m)), e.message(m), e.message(m), e.message(m)
	e.publish(first)
	tx := e.begin()
	e.must(tx.Append(e.op(), before), "append")
	wantDuplicate(e, tx.Append(e.op(), beside, e.twin(first)))
	e.must(tx.Append(e.op(), after), "append after a duplicate")
	e.must(tx.Commit(), "commit after a duplicate")
	e.wantRows("after the commit", e.due(m, allOf("", "")), first, before, after)
	if got := e.mustRow(m, first); string(got.Body) != string(first.Body) {
		e.Errorf("the first record was overwritten: body %q", got.Body)
	}
}

func appendDuplicateOwn(e *env) {
	m := e.join(storage.Outbox)
	first, after := given(e.message(m)), e.message(m)
	tx := e.begin()
	e.must(tx.Append(e.op(), first), "append")
	wantDuplicate(e, tx.Append(e.op(), e.twin(first)))
	e.must(tx.Append(e.op(), after), "append after a duplicate")
	e.must(tx.Commit(), "commit after a duplicate")
	e.wantRows("after the commit", e.due(m, allOf("", "")), first, after)
}

func appendDuplicateSameCall(e *env) {
	m := e.join(storage.Outbox)
	first, after := given(e.message(m)), e.message(m)
	tx := e.begin()
	wantDuplicate(e, tx.Append(e.op(), first, e.twin(first)))
	e.must(tx.Append(e.op(), after), "append after a duplicate")
	e.must(tx.Commit(), "commit after a duplicate")
	e.wantRows("after the commit", e.due(m, allOf("", "")), after)
}

func appendDuplicateAfterRollback(e *env) {
	m := e.join(storage.Outbox)
	rec := given(e.message(m))
	tx := e.begin()
	e.must(tx.Append(e.op(), rec), "append")
	e.must(tx.Rollback(), "rollback")
	e.publish(e.twin(rec))
	e.wantRows("published after a rollback of the same id", e.due(m, allOf("", "")), rec)
}

func appendDuplicateConcurrent(e *env) {
	m := e.join(storage.Outbox)
	rec := given(e.message(m))
	const n = 6
	errs := make([]error, n)
	ctx := e.op()
	together(n, func(i int) { errs[i] = publishOnce(ctx, e.store, e.twin(rec)) })
	committed := 0
	for _, err := range errs {
		switch {
		case err == nil:
			committed++
		case !errors.Is(err, storage.ErrDuplicate):
			e.Errorf("a concurrent duplicate: %v, want ErrDuplicate", err)
		}
	}
	if committed != 1 {
		e.Errorf("%d of %d transactions with the same id were committed, want 1", committed, n)
	}
	e.wantRows("published at once", e.due(m, allOf("", "")), rec)
}

func publishOnce(ctx context.Context, s storage.Storage, rec *storage.Record) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := tx.Append(ctx, rec); err != nil {
		return err
	}
	return tx.Commit()
}
