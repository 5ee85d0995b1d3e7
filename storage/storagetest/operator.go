package storagetest

import (
	"slices"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
)

func operatorCases() []testCase {
	const list = "List reads rows that match f, in order of seq, newest first unless p says otherwise. "
	return []testCase{
		{"operator/row", "Row is a row as an operator sees it: its Record has Headers and Body only when they were asked for.", operatorRow},
		{"operator/states", "What an operator calls the state of a row: its status, and whether it is final.", operatorStates},
		{"operator/pages", list + "Next tells where to go on.", operatorPages},
		{"operator/stable", list + "Rows that are added meanwhile change no later page of a listing that is newest first.", operatorStable},
		{"operator/filter", "Filter says which rows are meant: those for which all that is set holds.", operatorFilter},
		{"operator/message-id", "Filter.MessageID: of an outbox row it is the id.", operatorMessageID},
		{"operator/version", "Filter.Version: \"\" is all.", operatorVersion},
		{"operator/added", "AddedFrom and AddedBefore bound the moment at which the row was added, by the database's clock: from, inclusive, and before.", operatorAdded},
		{"operator/bytes", "Content asks for headers and bodies: then the page ends with the row that makes their sum exceed MaxPageBytes.", operatorBytes},
		{"operator/count", "Count counts rows by state. Where there are more than were looked at, it says so.", operatorCount},
		{"operator/keys", list + "So it does those with an ordering key.", operatorKeys},
		{"operator/keys-count", "Count counts rows by state, with an ordering key or without.", operatorKeysCount},
		{"operator/invalid", "A filter or a page that cannot be meant is refused.", operatorInvalid},
	}
}

// operator returns the operator of the storage; nil: it has none.
func (e *env) operator() storage.Operator {
	o, _ := e.store.(storage.Operator)
	return o
}

// listed returns all rows that match, page by page.
func (e *env) listed(o storage.Operator, f storage.Filter, p storage.Page) []*storage.Row {
	e.Helper()
	if f.Version == "" {
		f.Version = e.version
	}
	var rows []*storage.Row
	for pages := 0; ; pages++ {
		l, err := o.List(e.op(), f, p)
		e.must(err, "list")
		if rows = append(rows, l.Rows...); l.Next == 0 {
			return rows
		}
		if len(l.Rows) > p.Limit || pages > 3*1300 {
			e.Fatalf("a page of at most %d rows has %d, and there is another", p.Limit, len(l.Rows))
		}
		p.After = l.Next
	}
}

// all returns all rows that match, oldest first.
func (e *env) all(o storage.Operator, f storage.Filter) []*storage.Record {
	e.Helper()
	return recordsOf(e.listed(o, f, storage.Page{Limit: storage.MaxPage, Oldest: true}))
}

func recordsOf(rows []*storage.Row) []*storage.Record {
	recs := make([]*storage.Record, len(rows))
	for i, r := range rows {
		recs[i] = r.Record
	}
	return recs
}

// read returns one row with its content; nil: it is gone.
func (e *env) read(o storage.Operator, box storage.Box, id storage.ID) *storage.Row {
	e.Helper()
	rows := e.listed(o, storage.Filter{Box: box, IDs: []storage.ID{id}}, storage.Page{Limit: 1, Content: true})
	if len(rows) == 0 {
		return nil
	}
	return rows[0]
}

func (e *env) mustRead(o storage.Operator, box storage.Box, id storage.ID) *storage.Row {
	e.Helper()
	r := e.read(o, box, id)
	if r == nil {
		e.Fatalf("row %v cannot be read", id)
	}
	return r
}

func operatorRow(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	in, out := e.join(storage.Inbox), e.join(storage.Outbox)
	rec, msg := e.accepted(in), e.message(out)
	msg.Delay = time.Hour
	e.publish(msg)
	e.mustSettle(in, storage.Outcome{ID: rec.ID, Kind: storage.Fail, Attempt: 3, After: time.Hour, Error: "no"})
	r := e.mustRead(o, storage.Inbox, rec.ID)
	e.checkContent(r.Record, rec)
	if r.LastError != "no" || r.Retries != 3 || r.State() != storage.StateFailed || !r.Position.DueAt.IsZero() || r.DueIn != 0 || r.OwnerLiving {
		e.Errorf("a failed row: %+v of %+v", *r, *r.Record)
	}
	if keep := r.ExpiresAt.Sub(r.AddedAt); keep < time.Hour || keep > time.Hour+e.cfg.patience {
		e.Errorf("a row that expires in an hour does so %v after it was added", keep)
	}
	r = e.mustRead(o, storage.Outbox, msg.ID)
	e.checkContent(r.Record, msg)
	if r.DueIn <= time.Hour-e.cfg.patience || r.DueIn > time.Hour || !r.OwnerLiving || !r.ExpiresAt.IsZero() || r.Owner != out.Number() {
		e.Errorf("a delayed row: %+v of %+v", *r, *r.Record)
	}
	if at := r.AddedAt.Add(time.Hour).Sub(r.Position.DueAt).Abs(); at > e.cfg.patience {
		e.Errorf("a row added at %v with a delay of an hour is due at %v", r.AddedAt, r.Position.DueAt)
	}
	if want := int64(len(msg.Headers) + len(msg.Body)); r.Bytes != want {
		e.Errorf("a row of %d bytes has %d", want, r.Bytes)
	}
	e.leave(out)
	for _, r := range e.listed(o, storage.Filter{Box: storage.Outbox}, storage.Page{Limit: 5}) {
		if r.Headers != nil || r.Body != nil || r.OwnerLiving || r.Topic != msg.Topic {
			e.Errorf("without content, after its owner has left: %+v of %+v", *r, *r.Record)
		}
	}
}

// inEveryState returns an outbox row in each state, then a final one whose
// callback is owed.
func (e *env) inEveryState(m storage.Member) map[storage.State]*storage.Record {
	e.Helper()
	recs := e.messages(5, m)
	recs[1].Delay = time.Hour
	e.publish(recs...)
	e.mustSettle(m,
		storage.Outcome{ID: recs[2].ID, Kind: storage.Retry, Attempt: 1, After: time.Hour, Error: "later"},
		storage.Outcome{ID: recs[3].ID, Kind: storage.Fail, Attempt: 2, After: time.Hour, Error: "never"},
		succeed(recs[4]))
	return map[storage.State]*storage.Record{
		storage.StateScheduled: recs[0], storage.StateDelayed: recs[1], storage.StateRetrying: recs[2],
		storage.StateFailed: recs[3], storage.StateSucceeded: recs[4],
	}
}

func operatorStates(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Outbox)
	recs := e.inEveryState(m)
	for s, rec := range recs {
		got := e.all(o, storage.Filter{Box: storage.Outbox, States: []storage.State{s}})
		e.wantRows(s.String(), got, rec)
		if len(got) == 1 && got[0].State() != s {
			e.Errorf("a %v row is %v", s, got[0].State())
		}
	}
	some := func(what string, states ...storage.State) {
		e.Helper()
		var want []*storage.Record
		for _, s := range states {
			want = append(want, recs[s])
		}
		e.wantRows(what, e.all(o, storage.Filter{Box: storage.Outbox, States: states}), want...)
	}
	some("unfinished", storage.StateScheduled, storage.StateDelayed, storage.StateRetrying)
	some("held", storage.StateDelayed, storage.StateFailed)
	some("final", storage.StateFailed, storage.StateSucceeded)
	owed := e.published(m)
	e.mustSettle(m, storage.Outcome{ID: owed.ID, Kind: storage.Fail, After: time.Hour, Callback: true})
	e.wantRows("failed, a callback owed", e.all(o, storage.Filter{Box: storage.Outbox, States: []storage.State{storage.StateFailed}}),
		recs[storage.StateFailed], owed)
}

func operatorPages(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	const n = 1300 // more than a store may look at first
	m := e.join(storage.Inbox)
	var recs []*storage.Record
	for range n / 100 {
		part := e.deliveries(100, "g", "s")
		e.accept(m, part...)
		recs = append(recs, part...)
	}
	seqs := e.all(o, storage.Filter{Box: storage.Inbox})
	e.wantSet("all", seqs, recs...)
	if !slices.IsSortedFunc(seqs, func(a, b *storage.Record) int { return int(a.Position.Seq - b.Position.Seq) }) {
		e.Errorf("oldest first is not in order of seq")
	}
	back := slices.Clone(seqs)
	slices.Reverse(back)
	few := []*storage.Record{seqs[3], seqs[640], seqs[n-2]}
	for _, rec := range few {
		e.mustSettle(m, storage.Outcome{ID: rec.ID, Kind: storage.Retry, Attempt: 1})
	}
	for _, limit := range []int{1, 7, 500, storage.MaxPage} {
		for _, oldest := range []bool{false, true} {
			p := storage.Page{Limit: limit, Oldest: oldest}
			want, some := back, []*storage.Record{few[2], few[1], few[0]}
			if oldest {
				want, some = seqs, few
			}
			if limit > 1 {
				e.wantRows("page by page", recordsOf(e.listed(o, storage.Filter{Box: storage.Inbox}, p)), want...)
			}
			for _, st := range [][]storage.State{{storage.StateRetrying}, {storage.StateRetrying, storage.StateSucceeded}} {
				e.wantRows("few of many", recordsOf(e.listed(o, storage.Filter{Box: storage.Inbox, States: st}, p)), some...)
			}
		}
	}
}

func operatorStable(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Outbox)
	var recs []*storage.Record
	for range 6 {
		recs = append(recs, e.published(m))
	}
	var got []*storage.Record
	f, p := storage.Filter{Box: storage.Outbox, Version: e.version}, storage.Page{Limit: 2}
	for range 10 {
		l, err := o.List(e.op(), f, p)
		e.must(err, "list")
		got = append(got, recordsOf(l.Rows)...)
		if p.After = l.Next; l.Next == 0 {
			break
		}
		e.published(m)
	}
	slices.Reverse(got)
	e.wantRows("listed while rows are added", got, recs...)
}

func operatorFilter(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Inbox)
	recs := e.deliveries(5, "g", "s")
	for i, change := range []func(r *storage.Record){
		func(r *storage.Record) { r.Topic = "orders.paid" }, func(r *storage.Record) { r.Topic = "ördérs.paid" },
		func(r *storage.Record) { r.Group = "h" }, func(r *storage.Record) { r.Subscriber = "t" },
	} {
		change(recs[i])
	}
	for _, r := range recs {
		e.accept(m, r)
	}
	for what, c := range map[string]struct {
		f    storage.Filter
		want []*storage.Record
	}{
		"nothing":              {storage.Filter{}, recs},
		"topic":                {storage.Filter{Topic: "orders.paid"}, recs[:1]},
		"topic, not its parts": {storage.Filter{Topic: "orders"}, nil},
		"prefix":               {storage.Filter{TopicPrefix: "orders."}, []*storage.Record{recs[0], recs[2], recs[3], recs[4]}},
		"prefix, bytes":        {storage.Filter{TopicPrefix: "ördé"}, recs[1:2]},
		"prefix, case":         {storage.Filter{TopicPrefix: "Orders"}, nil},
		"prefix, no pattern":   {storage.Filter{TopicPrefix: "orders%"}, nil},
		"group":                {storage.Filter{Group: "h"}, recs[2:3]},
		"subscriber":           {storage.Filter{Subscriber: "t"}, recs[3:4]},
		"group and subscriber": {storage.Filter{Group: "h", Subscriber: "t"}, nil},
		"ids":                  {storage.Filter{IDs: []storage.ID{recs[4].ID, recs[1].ID, ids.New()}}, []*storage.Record{recs[1], recs[4]}},
		"ids and topic":        {storage.Filter{IDs: idsOf(recs), Topic: "orders.paid"}, recs[:1]},
	} {
		c.f.Box = storage.Inbox
		e.wantRows(what, e.all(o, c.f), c.want...)
		if c.f.IDs == nil {
			c.f.States = []storage.State{storage.StateScheduled}
			e.wantRows(what+", scheduled", e.all(o, c.f), c.want...)
		}
	}
	e.wantRows("the other box", e.all(o, storage.Filter{Box: storage.Outbox}))
}

func operatorMessageID(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	in, out := e.join(storage.Inbox), e.join(storage.Outbox)
	msg, other := e.published(out), e.published(out)
	recs := e.deliveries(3, "g", "s")
	recs[1].Subscriber, recs[1].MessageID, recs[2].Topic = "t", recs[0].MessageID, "orders.paid"
	e.accept(in, recs...)
	e.wantSet("inbox", e.all(o, storage.Filter{Box: storage.Inbox, MessageID: recs[0].MessageID}), recs[:2]...)
	e.wantSet("inbox and subscriber", e.all(o, storage.Filter{Box: storage.Inbox, MessageID: recs[0].MessageID, Subscriber: "t"}), recs[1])
	e.wantRows("inbox, unknown", e.all(o, storage.Filter{Box: storage.Inbox, MessageID: msg.ID.String()}))
	e.wantRows("outbox", e.all(o, storage.Filter{Box: storage.Outbox, MessageID: msg.ID.String()}), msg)
	e.wantRows("outbox, no UUID", e.all(o, storage.Filter{Box: storage.Outbox, MessageID: "x"}))
	e.wantRows("outbox, and another id", e.all(o, storage.Filter{Box: storage.Outbox, MessageID: msg.ID.String(), IDs: []storage.ID{other.ID}}))
}

func operatorVersion(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	foreign := e.other()
	mine, theirs := e.published(nil), foreign.published(nil)
	e.wantRows("of a version", e.all(o, storage.Filter{Box: storage.Outbox}), mine)
	l, err := o.List(e.op(), storage.Filter{Box: storage.Outbox, IDs: idsOf([]*storage.Record{mine, theirs})}, storage.Page{Limit: 2, Oldest: true})
	e.must(err, "list")
	e.wantRows("of all versions", recordsOf(l.Rows), mine, theirs)
}

func operatorAdded(e *env) {
	o := e.operator()
	if o == nil {
		return
	}
	m := e.join(storage.Outbox)
	old := e.published(m)
	at := e.mustRead(o, storage.Outbox, old.ID).AddedAt
	young := e.published(m)
	e.eventually("the clock ticks", func() bool {
		young = e.published(m)
		return e.mustRead(o, storage.Outbox, young.ID).AddedAt.After(at)
	})
	later := e.mustRead(o, storage.Outbox, young.ID).AddedAt
	has := func(rec *storage.Record, from, before time.Time) bool {
		got := e.all(o, storage.Filter{Box: storage.Outbox, AddedFrom: from, AddedBefore: before})
		return slices.Contains(idsOf(got), rec.ID)
	}
	for _, c := range []struct {
		from, before time.Time
		old, young   bool
	}{
		{at, time.Time{}, true, true},
		{later, time.Time{}, false, true},
		{time.Time{}, later, true, false},
		{at, at, false, false},
		{at, later, true, false},
		{at.Add(-time.Hour), later.Add(time.Hour), true, true},
		{later.Add(time.Hour), time.Time{}, false, false},
		{time.Time{}, at.Add(-time.Hour), false, false},
	} {
		if o, y := has(old, c.from, c.before), has(young, c.from, c.before); o != c.old || y != c.young {
			e.Errorf("from %v before %v: the row of %v %t, the row of %v %t", c.from, c.before, at, o, later, y)
		}
	}
}
