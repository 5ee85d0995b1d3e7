package storagetest

import (
	"time"

	"github.com/capbus/gocap/storage"
)

// What an operator and a health check are told of rows with an ordering key.

const keyedTopic = "keyed"

func inspectKeys(e *env) {
	if e.inspector() == nil {
		return
	}
	m, out, other := e.join(storage.Inbox), e.join(storage.Outbox), e.other()
	begun := time.Now()
	e.accept(m, e.keyedDelivery("keyed", "t", "b"), e.keyedDelivery("mixed", "s", "b"))
	e.keyed(2, out, "b")
	done := e.keyedDelivery("done", "s", "a")
	e.accept(m, done)
	e.mustSettle(m, succeed(done))
	other.accept(other.join(storage.Inbox), other.keyedDelivery("other", "s", "a"))
	least := e.older(begun)
	for _, subscriber := range []string{"s", "t", "u"} {
		for _, key := range []string{"a", "b", "c"} {
			e.accept(m, e.keyedDelivery("keyed", subscriber, key), e.delivery("mixed", subscriber))
		}
	}
	e.keyed(1, nil, "a")
	e.published(out)
	for _, group := range []string{"keyed", "mixed"} {
		if w := e.group(group, 10); w.Overdue < least || w.Age < least || w.Unmatched != 0 {
			e.Errorf("the oldest, with a key, is over %v old; told of group %s is %+v", least, group, w)
		}
	}
	if list := e.inspected(storage.Inbox, 10); len(list) != 2 {
		e.Errorf("two groups are told as %+v", list)
	}
	if list := e.inspected(storage.Outbox, 10); len(list) != 1 || list[0].Overdue < least || list[0].Age < least {
		e.Errorf("the oldest, with a key, is over %v old; told of the outbox is %+v", least, list)
	}
}

func inspectKeysUnmatched(e *env) {
	if e.inspector() == nil {
		return
	}
	m := e.join(storage.Inbox)
	e.accept(m, e.keyedDelivery("keyed", "", "a"), e.keyedDelivery("keyed", "", "a"), e.keyedDelivery("keyed", "", "b"))
	e.accept(m, e.keyedDelivery("mixed", "", "a"), e.keyedDelivery("mixed", "", "b"), e.delivery("mixed", ""))
	for _, group := range []string{"keyed", "mixed"} {
		if w := e.group(group, 10); w.Group != group || w.Unmatched != 3 {
			e.Errorf("group %s has 3 unmatched rows; told is %+v", group, w)
		}
	}
	if v := e.versionRows(storage.Inbox, 10); v.Rows != 6 {
		e.Errorf("6 unmatched rows are told as %+v", v)
	}
}

func inspectKeysVersions(e *env) {
	if e.inspector() == nil {
		return
	}
	a, b := e.other(), e.other()
	a.keyed(3, a.join(storage.Outbox), "a")
	b.keyed(2, nil, "a")
	b.published(nil)
	for _, env := range []*env{a, b} {
		if v := env.versionRows(storage.Outbox, 10); v.Rows != 3 || v.Living != (env == a) {
			e.Errorf("3 rows of a version, of which instances live %t, are told as %+v", env == a, v)
		}
	}
	if v := b.versionRows(storage.Outbox, 2); v.Rows != 2 {
		e.Errorf("counted up to 2: %+v", v)
	}
}

// keyedStates returns outbox rows with a key that are scheduled, twice, and
// retrying, and one without a key.
func (e *env) keyedStates(m storage.Member) (first, second, retrying, plain *storage.Record) {
	e.Helper()
	recs := e.messages(4, m)
	for i, key := range []string{"a", "a", "b", ""} {
		recs[i].Key, recs[i].Topic = key, keyedTopic
		e.publish(recs[i])
	}
	e.mustSettle(m, storage.Outcome{ID: recs[2].ID, Kind: storage.Retry, Attempt: 1, After: time.Hour, Error: "later"})
	return recs[0], recs[1], recs[2], recs[3]
}

func operatorKeys(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	first, second, retrying, plain := e.keyedStates(e.join(storage.Outbox))
	of := func(box storage.Box, states ...storage.State) []*storage.Record {
		return e.all(o, storage.Filter{Box: box, States: states})
	}
	e.wantRows("scheduled", of(storage.Outbox, storage.StateScheduled), first, second, plain)
	e.wantRows("retrying", of(storage.Outbox, storage.StateRetrying), retrying)
	e.wantRows("unfinished", of(storage.Outbox, storage.StateScheduled, storage.StateDelayed, storage.StateRetrying),
		first, second, retrying, plain)
	in := e.join(storage.Inbox)
	recs := []*storage.Record{
		e.keyedDelivery("g", "s", "b"), e.keyedDelivery("g", "t", "a"), e.keyedDelivery("h", "", "a"), e.delivery("h", ""), e.delivery("g", "s"),
	}
	for _, r := range recs {
		e.accept(in, r)
	}
	e.wantRows("scheduled in the inbox", of(storage.Inbox, storage.StateScheduled), recs...)
	l, err := o.List(e.op(), storage.Filter{Box: storage.Inbox, States: []storage.State{storage.StateScheduled}}, storage.Page{Limit: storage.MaxPage})
	e.must(err, "list")
	found := idsOf(recordsOf(l.Rows))
	for _, r := range recs {
		if got := e.mustRead(o, storage.Inbox, r.ID).Key; got != r.Key {
			e.Errorf("a row with the key %q has %q", r.Key, got)
		}
		n := 0
		for _, id := range found {
			if id == r.ID {
				n++
			}
		}
		if n > 1 || n == 0 && l.Next == 0 {
			e.Errorf("of all versions, a row with key %q of subscriber %q is there %d times", r.Key, r.Subscriber, n)
		}
	}
}

func operatorKeysCount(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Outbox)
	e.keyedStates(m)
	e.other().keyedStates(m) // of another version
	in := e.join(storage.Inbox)
	e.accept(in, e.keyedDelivery("g", "s", "a"), e.keyedDelivery("g", "", "a"), e.delivery("g", ""), e.delivery("g", "s"))
	for box, want := range map[storage.Box]map[storage.State]int{
		storage.Outbox: {storage.StateScheduled: 3, storage.StateRetrying: 1},
		storage.Inbox:  {storage.StateScheduled: 4},
	} {
		c, err := o.Count(e.op(), storage.CountQuery{Box: box, Version: e.version, Most: 1000})
		e.must(err, "count")
		lines := map[storage.State]int{}
		for _, l := range c.Lines {
			lines[l.State] += l.Rows
		}
		for _, s := range c.States {
			if s.Rows != want[s.State] || lines[s.State] != want[s.State] {
				e.Errorf("%v has %d %v rows; counted are %d, in lines %d", box, want[s.State], s.State, s.Rows, lines[s.State])
			}
		}
		c, err = o.Count(e.op(), storage.CountQuery{Box: box, Version: e.version, Most: 2})
		e.must(err, "count")
		if s := c.States[0]; s.Rows > 2 || !s.More {
			e.Errorf("%v, when two rows are counted: %d, more %t", box, s.Rows, s.More)
		}
	}
}
