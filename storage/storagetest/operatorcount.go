package storagetest

import (
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

func operatorBytes(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Outbox)
	recs := e.messages(5, m)
	for _, r := range recs {
		r.Body = make([]byte, storage.MaxPageBytes/3+1)
		e.publish(r)
	}
	f, p := storage.Filter{Box: storage.Outbox, Version: e.version}, storage.Page{Limit: 5, Content: true, Oldest: true}
	l, err := o.List(e.op(), f, p)
	e.must(err, "list")
	e.mustRows("the first page", recordsOf(l.Rows), recs[:3]...)
	if l.Next == 0 {
		e.Fatalf("a page that is cut has no next one")
	}
	e.wantRows("all", recordsOf(e.listed(o, f, p)), recs...)
	p.Content = false
	l, err = o.List(e.op(), f, p)
	e.must(err, "list")
	e.wantRows("without content", recordsOf(l.Rows), recs...)
}

func operatorCount(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Outbox)
	e.inEveryState(m)
	recs := e.inEveryState(m)
	owed := e.published(m)
	owed.Topic = "other"
	e.mustSettle(m, storage.Outcome{ID: owed.ID, Kind: storage.Fail, After: time.Hour, Callback: true})
	e.other().inEveryState(e.join(storage.Outbox)) // of another version; the member does not matter
	c, err := o.Count(e.op(), storage.CountQuery{Box: storage.Outbox, Version: e.version, Most: 1000})
	e.must(err, "count")
	var got []storage.StateCount
	for _, s := range c.States {
		s.More = false // rows of other versions may be in the way
		got = append(got, s)
	}
	want := []storage.StateCount{
		{State: storage.StateScheduled, Rows: 2},
		{State: storage.StateDelayed, Rows: 2},
		{State: storage.StateRetrying, Rows: 2},
		{State: storage.StateFailed, Rows: 3},
		{State: storage.StateSucceeded, Rows: 2},
	}
	if !slices.Equal(got, want) {
		e.Errorf("counted %+v, want %+v", got, want)
	}
	lines := map[storage.State]int{}
	for _, l := range c.Lines {
		if l.Topic != recs[storage.StateFailed].Topic || l.Group != "" {
			e.Errorf("a line of topic %q, group %q", l.Topic, l.Group)
		}
		lines[l.State] += l.Rows
	}
	if lines[storage.StateScheduled] != 2 || lines[storage.StateFailed] != 3 || lines[storage.StateSucceeded] != 0 {
		e.Errorf("lines have %v", lines)
	}
	c, err = o.Count(e.op(), storage.CountQuery{Box: storage.Outbox, Most: 1})
	e.must(err, "count")
	for _, s := range c.States {
		if s.Rows > 1 || !s.More {
			e.Errorf("of at least two %v rows, when one is counted: %d, more %t", s.State, s.Rows, s.More)
		}
	}
}

func operatorInvalid(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	good := storage.Filter{Box: storage.Outbox}
	for _, limit := range []int{-1, 0, storage.MaxPage + 1} {
		if _, err := o.List(e.op(), good, storage.Page{Limit: limit}); err == nil {
			e.Errorf("a page of %d rows is not refused", limit)
		}
	}
	if _, err := o.List(e.op(), storage.Filter{}, storage.Page{Limit: 1}); err == nil {
		e.Errorf("a filter without a box is not refused")
	}
	if _, err := o.Change(e.op(), storage.Delete+1, good); err == nil {
		e.Errorf("an unknown action is not refused")
	}
	if _, err := o.Count(e.op(), storage.CountQuery{Box: storage.Outbox, Most: storage.MaxCount + 1}); err == nil {
		e.Errorf("a count without a bound is not refused")
	}
}
