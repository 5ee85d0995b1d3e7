package storagetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/capbus/gocap/storage"
)

func glanceCases() []testCase {
	const (
		never   = "Glance may see more than a look would find, never less. "
		nothing = "Glance sees nothing where all rows are final, or due later, or owned by other living members."
	)
	return []testCase{
		{"glance/nothing", nothing, glanceNothing},
		{"glance/next", never + "Next is the wait until the first row of the member in the lanes is due; 0: one is due.", glanceNext},
		{"glance/orphans", never + "Orphans: TakeOver of the lanes would take rows. It changes no row.", glanceOrphans},
		{"glance/owners", never + "Rows of an owner that was not known are seen, too.", glanceOwners},
		{"glance/dead", "Orphans: TakeOver has an instance to declare dead.", glanceDead},
		{"glance/locked", "Glance takes and renews the locks of Lanes as TakeOver does, and sees orphans in those alone whose lock the member holds.", glanceLocked},
		{"glance/keys", "Keys: one of the lanes has an unfinished row with a key, whoever owns it and whenever it is due.", glanceKeys},
		{"glance/unmatched", "Unmatched: one of the groups has an unmatched row.", glanceUnmatched},
		{"glance/many", never + "It looks at all lanes and groups that it is asked for.", glanceMany},
		{"glance/lost", "A member that has ended gets ErrLost.", glanceLost},
	}
}

// laneOf is a lane as a glance is asked for it.
func laneOf(group, subscriber string) []storage.Lane {
	return []storage.Lane{{Group: group, Subscriber: subscriber}}
}

// glance skips the rest of the case where the storage has none.
func (e *env) glance(m storage.Member, q storage.GlanceQuery) (seen storage.Glance, ok bool) {
	e.Helper()
	g, ok := m.(storage.Glancer)
	if !ok {
		return seen, false
	}
	seen, err := g.Glance(e.op(), q)
	e.must(err, "glance")
	return seen, true
}

func (e *env) wantGlance(what string, m storage.Member, q storage.GlanceQuery, want storage.Glance) {
	e.Helper()
	got, ok := e.glance(m, q)
	for range 20 {
		if !ok || !got.Orphans || want.Orphans {
			break
		}
		e.bury()
		got, ok = e.glance(m, q)
	}
	if ok && got != want {
		e.Errorf("%s: seen %+v, want %+v", what, got, want)
	}
}

// bury declares the dead of other cases in the same storage dead.
func (e *env) bury() {
	e.Helper()
	other := e.other()
	m := other.join(storage.Inbox)
	other.takeOver(m, allOf("", "nobody"))
	other.leave(m)
}

func glanceNothing(e *env) {
	m, other := e.join(storage.Inbox), e.join(storage.Inbox)
	q := storage.GlanceQuery{Lanes: laneOf("g", "s"), Keys: laneOf("g", "s"), Groups: []string{"g"}}
	none := storage.Glance{Next: -1}
	e.wantGlance("in an empty lane", m, q, none)
	e.accepted(other)
	done := e.accepted(m)
	e.mustSettle(m, succeed(done))
	e.accept(m, e.delivery("h", "s"), e.delivery("g", "t"))
	elsewhere := e.other()
	elsewhere.accept(elsewhere.join(storage.Inbox), elsewhere.delivery("g", "s"))
	e.wantGlance("beside final rows, and those of others", m, q, none)
	gone := e.join(storage.Inbox)
	later := e.accepted(gone)
	e.mustSettle(gone, storage.Outcome{ID: later.ID, Kind: storage.Retry, Attempt: 1, After: time.Hour})
	e.leave(gone)
	e.wantGlance("beside what nobody owns and is due later", m, q, none)
}

func glanceNext(e *env) {
	m := e.join(storage.Outbox)
	q := storage.GlanceQuery{Lanes: laneOf("", "")}
	for _, d := range []time.Duration{time.Hour, time.Minute} {
		rec := e.message(m)
		rec.Delay = d
		e.publish(rec)
		if seen, ok := e.glance(m, q); ok && (seen.Next <= d-e.cfg.patience || seen.Next > d) {
			e.Errorf("with a row that is due in %v: seen %+v", d, seen)
		}
	}
	e.published(m)
	e.wantGlance("with a row that is due", m, q, storage.Glance{})
}

func glanceOrphans(e *env) {
	m := e.join(storage.Inbox)
	q := storage.GlanceQuery{Lanes: laneOf("g", "s")}
	seen := storage.Glance{Next: -1, Orphans: true}
	recs := e.left(2, "g", "s")
	e.wantGlance("rows of one that has left", m, q, seen)
	e.wantGlance("seen once more", m, q, seen)
	taken := e.takeOver(m, allOf("g", "s"))
	e.wantSet("left to the look", taken, recs...)
	e.wantGlance("its own now", m, q, storage.Glance{})
	for _, rec := range taken {
		e.mustSettle(m, succeed(rec))
	}
	e.wantGlance("when they are final", m, q, storage.Glance{Next: -1})
	out := e.join(storage.Outbox)
	e.published(nil)
	e.wantGlance("a row of nobody", out, storage.GlanceQuery{Lanes: laneOf("", "")}, seen)
}

func glanceOwners(e *env) {
	m := e.join(storage.Outbox)
	q := storage.GlanceQuery{Lanes: laneOf("", "")}
	for i := range 12 {
		gone := e.join(storage.Outbox)
		later := e.message(gone)
		later.Delay = time.Hour
		e.publish(later)
		e.leave(gone)
		e.wantGlance(fmt.Sprint("delayed rows of ", i+1, " owners"), m, q, storage.Glance{Next: -1})
		e.published(e.join(storage.Outbox))
	}
	e.wantGlance("those of the living", m, q, storage.Glance{Next: -1})
	last := e.join(storage.Outbox)
	e.published(last)
	e.wantGlance("one that lives", m, q, storage.Glance{Next: -1})
	e.leave(last)
	e.wantGlance("one that has left since", m, q, storage.Glance{Next: -1, Orphans: true})
}

func glanceDead(e *env) {
	m := e.join(storage.Inbox)
	rec := e.accepted(e.mortal(storage.Inbox))
	q := storage.GlanceQuery{Lanes: laneOf("g", "s")}
	if _, ok := e.glance(m, q); !ok {
		return
	}
	var left []*storage.Record
	e.eventually("that an instance is dead is seen", func() bool {
		seen, _ := e.glance(m, q)
		if seen.Orphans { // it may be another one, of another case
			left = e.takeOver(m, allOf("g", "s"))
		}
		return len(left) > 0
	})
	e.wantSet("left to the look", left, rec)
}

func glanceLocked(e *env) {
	a, b := e.join(storage.Inbox), e.join(storage.Inbox)
	q := storage.GlanceQuery{Lanes: laneOf("g", "s"), Locked: true}
	if _, ok := e.glance(a, q); !ok || !e.locks() {
		return
	}
	recs := e.left(2, "g", "s")
	e.wantRows("to who has no lock", e.takeOver(b, locked("g", "s")))
	e.wantGlance("by who has no lock", b, q, storage.Glance{Next: -1})
	e.wantGlance("by who has it", a, q, storage.Glance{Next: -1, Orphans: true})
	e.accepted(b)
	e.wantGlance("its own, by who has no lock", b, q, storage.Glance{})
	e.wantSet("to who has it", e.takeOver(a, locked("g", "s")), recs...)
}

func glanceKeys(e *env) {
	m, other := e.join(storage.Inbox), e.join(storage.Inbox)
	q := storage.GlanceQuery{Lanes: laneOf("g", "s"), Keys: laneOf("g", "s")}
	rec := e.delivery("g", "s")
	rec.Key = "k"
	e.accept(other, rec)
	e.wantGlance("of another", m, q, storage.Glance{Next: -1, Keys: true})
	e.mustSettle(other, storage.Outcome{ID: rec.ID, Kind: storage.Retry, Attempt: 1, After: time.Hour})
	e.wantGlance("due later", m, q, storage.Glance{Next: -1, Keys: true})
	e.wantGlance("in another lane", m, storage.GlanceQuery{Lanes: laneOf("g", "s"), Keys: laneOf("g", "t")}, storage.Glance{Next: -1})
	e.mustSettle(other, succeed(rec))
	e.wantGlance("final", m, q, storage.Glance{Next: -1})
	out := e.join(storage.Outbox)
	rec = e.message(nil)
	rec.Key = "k"
	e.publish(rec)
	e.wantGlance("of nobody", out, storage.GlanceQuery{Lanes: laneOf("", ""), Keys: laneOf("", "")}, storage.Glance{Next: -1, Keys: true})
}

func glanceUnmatched(e *env) {
	m, other := e.join(storage.Inbox), e.join(storage.Inbox)
	q := storage.GlanceQuery{Lanes: laneOf("g", "s"), Keys: laneOf("g", "s"), Groups: []string{"g"}}
	e.accept(other, e.delivery("h", ""))
	e.wantGlance("of another group", m, q, storage.Glance{Next: -1})
	e.accept(other, e.delivery("g", ""))
	e.wantGlance("of the group", m, q, storage.Glance{Next: -1, Unmatched: true})
}

func glanceMany(e *env) {
	m := e.join(storage.Inbox)
	q := storage.GlanceQuery{Groups: []string{"g"}}
	for i := range 70 {
		q.Lanes = append(q.Lanes, laneOf("g", fmt.Sprint(i))...)
		q.Keys = append(q.Keys, laneOf("g", fmt.Sprint(i))...)
		q.Groups = append(q.Groups, fmt.Sprint(i))
	}
	e.wantGlance("empty lanes", m, q, storage.Glance{Next: -1})
	keyed := e.delivery("g", "69")
	keyed.Key = "k"
	e.accept(m, e.delivery("g", "68"), keyed, e.delivery("69", ""))
	e.left(1, "g", "69")
	e.wantGlance("in the last ones", m, q, storage.Glance{Orphans: true, Keys: true, Unmatched: true})
}

func glanceLost(e *env) {
	m := e.join(storage.Inbox)
	e.left(1, "g", "s")
	g, ok := m.(storage.Glancer)
	if !ok {
		return
	}
	e.leave(m)
	if _, err := g.Glance(e.op(), storage.GlanceQuery{Lanes: laneOf("g", "s")}); !errors.Is(err, storage.ErrLost) {
		e.Errorf("a glance of one that has left: %v, want ErrLost", err)
	}
}
