package storagetest

import (
	"context"
	"time"

	"github.com/capbus/gocap/storage"
)

func splitCases() []testCase {
	const unmatched = "Unmatched reads rows of the groups that matched no subscription when they came, in order of seq, starting behind after."
	const split = "Split replaces an unmatched row by rows for its subscriptions, owned by this member, in one transaction; rows that are there already are skipped. It returns those it inserted; none when the row was gone."
	return []testCase{
		{"unmatched/order", unmatched, unmatchedOrder},
		{"unmatched/groups", unmatched, unmatchedGroups},
		{"unmatched/only", unmatched, unmatchedOnly},
		{"split/replaces", split, splitReplaces},
		{"split/skips", split, splitSkips},
		{"split/gone", split, splitGone},
		{"split/matched", split, splitMatched},
		{"split/atomic", split, splitAtomic},
		{"split/once", split, splitOnce},
		{"split/or-failed", "A row is split, or it ends without a subscriber, never both: every change is conditional.", splitOrFailed},
	}
}

func (e *env) unmatched(m storage.Member, after int64, limit int, groups ...string) []*storage.Record {
	e.Helper()
	recs, err := m.Unmatched(e.op(), groups, after, limit)
	e.must(err, "unmatched")
	return recs
}

func (e *env) split(m storage.Member, row *storage.Record, into ...*storage.Record) []*storage.Record {
	e.Helper()
	fresh, err := m.Split(e.op(), row, into...)
	e.must(err, "split")
	return fresh
}

// waiting accepts one unmatched record and returns it.
func (e *env) waiting(m storage.Member) *storage.Record {
	e.Helper()
	rec := e.delivery("g", "")
	e.accept(m, rec)
	return rec
}

// copiesFor returns the records into which an unmatched one is split.
func copiesFor(row *storage.Record, subscribers ...string) []*storage.Record {
	var recs []*storage.Record
	for _, sub := range subscribers {
		rec := again(row)
		rec.Subscriber = sub
		recs = append(recs, rec)
	}
	return recs
}

func unmatchedOrder(e *env) {
	m := e.join(storage.Inbox)
	var want []*storage.Record
	for range 7 {
		want = append(want, e.waiting(m))
	}
	e.wantRows("all", e.unmatched(m, 0, 100, "g"), want...)
	var read []*storage.Record
	var after int64
	for len(read) < len(want) {
		got := e.unmatched(m, after, 3, "g")
		if len(got) == 0 || len(got) > 3 {
			e.Fatalf("%d rows, the limit is 3 and %d are left", len(got), len(want)-len(read))
		}
		read = append(read, got...)
		after = got[len(got)-1].Position.Seq
	}
	e.mustRows("page by page", read, want...)
	e.wantRows("behind the last", e.unmatched(m, after, 3, "g"))
	for i, r := range read {
		e.checkContent(r, want[i])
	}
}

func unmatchedGroups(e *env) {
	m := e.join(storage.Inbox)
	a, b, c := e.delivery("a", ""), e.delivery("b", ""), e.delivery("c", "")
	for _, rec := range []*storage.Record{c, a, b} {
		e.accept(m, rec)
	}
	e.wantRows("of two groups", e.unmatched(m, 0, 10, "a", "c"), c, a)
	e.wantRows("of two groups, one row", e.unmatched(m, 0, 1, "a", "c"), c)
	e.wantRows("of another group", e.unmatched(m, 0, 10, "A", "d"))
	foreign := e.other()
	fm := foreign.join(storage.Inbox)
	e.wantRows("of another version", foreign.unmatched(fm, 0, 10, "a", "b", "c"))
}

func unmatchedOnly(e *env) {
	m := e.join(storage.Inbox)
	e.accepted(m)
	row, failed := e.waiting(m), e.waiting(m)
	e.wantRows("taken over", e.takeOver(m, byID(failed)), failed)
	e.mustSettle(m, storage.Outcome{ID: failed.ID, Kind: storage.Fail, After: time.Hour, Callback: true})
	e.wantRows("beside a matched and a failed one", e.unmatched(m, 0, 10, "g"), row)
}

func splitReplaces(e *env) {
	m, splitter := e.join(storage.Inbox), e.join(storage.Inbox)
	row := e.waiting(m)
	into := copiesFor(row, "s1", "s2")
	e.wantSet("inserted", e.split(splitter, row, into...), into...)
	e.wantRows("still unmatched", e.unmatched(m, 0, 10, "g"))
	for _, rec := range into {
		got := e.due(splitter, allOf("g", rec.Subscriber))
		e.wantRows("due for "+rec.Subscriber, got, rec)
		for _, r := range got {
			e.checkContent(r, rec)
			e.wantTakeovers("a split row", r, splitter, 0)
		}
		e.wantRows("accepted although it is split", e.accept(m, again(rec)))
	}
	e.wantRows("taken over although it is gone", e.takeOver(splitter, byID(row)))
}

func splitSkips(e *env) {
	m := e.join(storage.Inbox)
	row := e.waiting(m)
	into := copiesFor(row, "s1", "s2")
	there := again(into[0])
	e.accept(m, there)
	e.wantSet("inserted", e.split(m, row, into...), into[1])
	e.wantRows("of the first subscription", e.due(m, allOf("g", "s1")), there)
	e.wantRows("of the second", e.due(m, allOf("g", "s2")), into[1])
	e.wantRows("still unmatched", e.unmatched(m, 0, 10, "g"))
}

func splitGone(e *env) {
	m := e.join(storage.Inbox)
	row := e.waiting(m)
	into := copiesFor(row, "s1")
	e.split(m, row, into...)
	e.wantRows("split again", e.split(m, row, copiesFor(row, "s1", "s2")...))
	e.wantRows("split of an unknown row", e.split(m, e.delivery("g", ""), copiesFor(row, "s3")...))
	e.wantRows("of s1", e.due(m, allOf("g", "s1")), into...)
	e.wantRows("of s2", e.due(m, allOf("g", "s2")))
	e.wantRows("of s3", e.due(m, allOf("g", "s3")))
}

func splitMatched(e *env) {
	m := e.join(storage.Inbox)
	rec := e.accepted(m)
	e.wantRows("split of a row that is matched", e.split(m, rec, copiesFor(rec, "s2")...))
	e.wantRows("still due", e.due(m, allOf("g", "s")), rec)
	e.wantRows("of s2", e.due(m, allOf("g", "s2")))
}

func splitAtomic(e *env) {
	m := e.join(storage.Inbox)
	row := e.waiting(m)
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	if _, err := m.Split(ctx, row, copiesFor(row, "s1")...); err == nil {
		e.Errorf("split with a context that has ended: no error")
	}
	e.wantRows("still unmatched", e.unmatched(m, 0, 10, "g"), row)
	e.wantRows("of s1", e.due(m, allOf("g", "s1")))
}

func splitOnce(e *env) {
	const n = 4
	members := make([]storage.Member, n)
	for i := range members {
		members[i] = e.join(storage.Inbox)
	}
	for range 10 {
		row := e.waiting(members[0])
		fresh := make([][]*storage.Record, n)
		ctx := e.op()
		together(n, func(i int) {
			var err error
			if fresh[i], err = members[i].Split(ctx, row, copiesFor(row, "s1", "s2")...); err != nil {
				e.Errorf("split: %v", err)
			}
		})
		winners := 0
		for i, recs := range fresh {
			if len(recs) == 0 {
				continue
			}
			winners++
			e.wantSet("what the one that has split it has", e.due(members[i], byID(recs...)), recs...)
			if len(recs) != 2 {
				e.Errorf("a split inserted %d rows, want 2", len(recs))
			}
		}
		if winners != 1 {
			e.Errorf("%d members have split the row, want one", winners)
		}
	}
}

func splitOrFailed(e *env) {
	m, splitter := e.join(storage.Inbox), e.join(storage.Inbox)
	for range 10 {
		row := e.waiting(m)
		e.wantRows("taken over", e.takeOver(m, byID(row)), row)
		var fresh []*storage.Record
		var lost []storage.ID
		ctx := e.op()
		together(2, func(i int) {
			var err error
			if i == 0 {
				fresh, err = splitter.Split(ctx, row, copiesFor(row, "s1")...)
			} else {
				lost, err = m.Settle(ctx, storage.Outcome{ID: row.ID, Kind: storage.Fail, After: time.Hour})
			}
			if err != nil {
				e.Errorf("split or settle: %v", err)
			}
		})
		if split, failed := len(fresh) > 0, len(lost) == 0; split == failed {
			e.Errorf("the row was split: %t, and failed: %t, want one of them", split, failed)
		}
	}
}
