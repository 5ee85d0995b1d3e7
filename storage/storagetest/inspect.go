package storagetest

import (
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

func inspectCases() []testCase {
	const why = "Waiting tells of the unfinished rows of a version, an entry for each group that has some. "
	const versions = "Versions tells of all versions that have unfinished rows in a box, in the order of their names. "
	return []testCase{
		{"inspect/outbox", why + "In the outbox that is one, without a name.", inspectOutbox},
		{"inspect/groups", why, inspectGroups},
		{"inspect/owners", why + "Overdue is how long the row has been due that has been for longest.", inspectOwners},
		{"inspect/later", "Age: if none is due, it is that of the row that will be due next, if that one has failed before; else 0.", inspectLater},
		{"inspect/unmatched", "Unmatched rows match no subscription so far. They are counted up to the number given.", inspectUnmatched},
		{"inspect/keys", why + "Of rows with an ordering key it may look at the first of each key alone.", inspectKeys},
		{"inspect/keys-unmatched", "Unmatched rows are counted whether they have a key or not.", inspectKeysUnmatched},
		{"inspect/keys-versions", versions + "Rows with an ordering key are counted, too.", inspectKeysVersions},
		{"inspect/finished", why + "Finished rows are none of them.", inspectFinished},
		{"inspect/versions", versions, inspectVersions},
		{"inspect/versions-living", versions + "Living: an instance of this box and version lives.", inspectLiving},
	}
}

// inspector returns the ability, nil where the storage lacks it.
func (e *env) inspector() storage.Inspector {
	i, _ := e.store.(storage.Inspector)
	return i
}

func (e *env) inspected(b storage.Box, most int) []storage.Waiting {
	e.Helper()
	list, err := e.inspector().Waiting(e.op(), b, e.version, most)
	e.must(err, "waiting")
	return list
}

// group returns what waits in a group.
func (e *env) group(name string, most int) storage.Waiting {
	e.Helper()
	for _, w := range e.inspected(storage.Inbox, most) {
		if w.Group == name {
			return w
		}
	}
	return storage.Waiting{}
}

// older waits until the clocks have gone on by some ticks, and returns by how
// much at least.
func (e *env) older(begun time.Time) time.Duration {
	e.Helper()
	e.eventually("the clock goes on", func() bool { return time.Since(begun) > 4*coarse })
	return 3 * coarse
}

func inspectOutbox(e *env) {
	if e.inspector() == nil {
		return
	}
	if list := e.inspected(storage.Outbox, 10); len(list) != 0 {
		e.Errorf("an empty outbox has %+v", list)
	}
	m, other := e.join(storage.Outbox), e.other()
	begun := time.Now()
	e.published(m)
	other.published(nil)
	least := e.older(begun)
	e.published(nil)
	e.published(m)
	list := e.inspected(storage.Outbox, 10)
	most := time.Since(begun) + coarse
	if len(list) != 1 || list[0].Group != "" || list[0].Unmatched != 0 {
		e.Fatalf("three rows are told as %+v", list)
	}
	if w := list[0]; w.Overdue < least || w.Overdue > most || w.Age < least || w.Age > most {
		e.Errorf("the first was published %v to %v ago; told is %+v", least, most, w)
	}
}

func inspectGroups(e *env) {
	if e.inspector() == nil {
		return
	}
	m, other := e.join(storage.Inbox), e.other()
	e.accept(m, e.deliveries(2, "a", "s")...)
	e.accept(m, e.deliveries(2, "a", "t")...)
	e.accept(m, e.deliveries(1, "b", "s")...)
	other.accept(other.join(storage.Inbox), other.delivery("c", "s"))
	var names []string
	for _, w := range e.inspected(storage.Inbox, 10) {
		names = append(names, w.Group)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"a", "b"}) {
		e.Errorf("groups %q have rows, want a and b", names)
	}
}

// inspectOwners: the oldest row may be anyone's, and of any subscriber.
func inspectOwners(e *env) {
	if e.inspector() == nil {
		return
	}
	for _, oldest := range []string{"s", "t", "u"} {
		for place := range 3 {
			group := oldest + string(rune('a'+place))
			ms := []storage.Member{e.join(storage.Inbox), e.join(storage.Inbox), e.join(storage.Inbox)}
			e.accept(ms[place], e.delivery(group, oldest))
			begun := time.Now()
			least := e.older(begun)
			for _, m := range ms {
				e.accept(m, e.delivery(group, "s"), e.delivery(group, "t"), e.delivery(group, "u"), e.delivery(group, ""))
			}
			if w := e.group(group, 10); w.Overdue < least || w.Age < least || w.Unmatched != 3 {
				e.Errorf("the oldest, of %s, is over %v old, and 3 are unmatched; told is %+v", oldest, least, w)
			}
		}
	}
}

func inspectLater(e *env) {
	if e.inspector() == nil {
		return
	}
	m := e.join(storage.Inbox)
	rec, other := e.delivery("failed", "s"), e.delivery("asked", "s")
	e.accept(m, rec, other)
	begun := time.Now()
	e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Retry, Attempt: 1, After: time.Hour, Error: "x"},
		storage.Outcome{ID: other.ID, Kind: storage.Postpone, After: time.Hour})
	least := e.older(begun)
	if w := e.group("failed", 10); w.Overdue != 0 || w.Age < least {
		e.Errorf("a failed row of over %v, due in an hour: %+v", least, w)
	}
	if w := e.group("asked", 10); w.Group == "" || w.Overdue != 0 || w.Age != 0 {
		e.Errorf("a row that was put off for an hour: %+v", w)
	}
}

func inspectUnmatched(e *env) {
	if e.inspector() == nil {
		return
	}
	m := e.join(storage.Inbox)
	e.accept(m, e.deliveries(5, "a", "")...)
	e.accept(m, e.delivery("a", "s"), e.delivery("b", "s"))
	e.accept(m, e.deliveries(2, "c", "")...)
	for group, want := range map[string]int{"a": 5, "b": 0, "c": 2} {
		if w := e.group(group, 10); w.Group != group || w.Unmatched != want {
			e.Errorf("group %s has %d unmatched rows; told is %+v", group, want, w)
		}
	}
	if w := e.group("a", 3); w.Unmatched != 3 {
		e.Errorf("counted up to 3: %+v", w)
	}
}

func inspectFinished(e *env) {
	if e.inspector() == nil {
		return
	}
	m := e.join(storage.Inbox)
	done, failed := e.delivery("a", "s"), e.delivery("a", "s")
	e.accept(m, done, failed)
	e.mustSettle(m, succeed(done), storage.Outcome{ID: failed.ID, Kind: storage.Fail, After: time.Hour})
	if list := e.inspected(storage.Inbox, 10); len(list) != 0 {
		e.Errorf("finished rows are told as %+v", list)
	}
	if v := e.versionRows(storage.Inbox, 10); v.Version != "" {
		e.Errorf("finished rows are told as %+v", v)
	}
}

// versionRows returns what is told of the case's version; the zero value if it
// is not among them.
func (e *env) versionRows(b storage.Box, most int) storage.VersionRows {
	e.Helper()
	list, err := e.inspector().Versions(e.op(), b, most)
	e.must(err, "versions")
	if !slices.IsSortedFunc(list, func(a, b storage.VersionRows) int {
		if a.Version < b.Version {
			return -1
		}
		return 1
	}) {
		e.Errorf("not in the order of their names, each once: %+v", list)
	}
	for _, v := range list {
		if v.Version == e.version {
			return v
		}
	}
	return storage.VersionRows{}
}

func inspectVersions(e *env) {
	if e.inspector() == nil {
		return
	}
	a, b := e.other(), e.other()
	a.publish(a.messages(4, nil)...)
	b.publish(b.messages(2, b.join(storage.Outbox))...)
	for env, want := range map[*env]int{a: 4, b: 2, e: 0} {
		if v := env.versionRows(storage.Outbox, 10); v.Rows != want {
			e.Errorf("%d rows of a version are told as %+v", want, v)
		}
		if v := env.versionRows(storage.Inbox, 10); v.Rows != 0 {
			e.Errorf("no rows in the inbox are told as %+v", v)
		}
	}
	if v := a.versionRows(storage.Outbox, 3); v.Rows != 3 {
		e.Errorf("counted up to 3: %+v", v)
	}
}

func inspectLiving(e *env) {
	if e.inspector() == nil {
		return
	}
	wrong := e.join(storage.Inbox)
	e.published(nil)
	living := func(want bool, when string) {
		e.Helper()
		if v := e.versionRows(storage.Outbox, 10); v.Living != want || v.Rows != 1 {
			e.Errorf("%s: %+v", when, v)
		}
	}
	living(false, "an instance of the other box lives")
	e.leave(wrong)
	m := e.join(storage.Outbox)
	living(true, "an instance lives")
	e.leave(m)
	living(false, "it has left")
	e.mortal(storage.Outbox)
	e.eventually("an instance whose lease has run out is not living", func() bool {
		return !e.versionRows(storage.Outbox, 10).Living
	})
}
