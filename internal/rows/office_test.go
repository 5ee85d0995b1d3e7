package rows_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

// office is a desk on a store of its own, and what it has done.
type office struct {
	*rows.Desk

	t      *testing.T
	s      *spy
	keeper *rows.Keeper
	log    *lines

	mark func(*storage.Record) // changes a row that is admitted; nil: as it is

	endWork, endLast context.CancelFunc
	done             chan struct{}

	mu      sync.Mutex
	started []*rows.Row
	freed   int
	later   []time.Duration
	called  []*storage.Record // callbacks
}

// open makes an office and runs it; adjust changes its configuration. It must
// be called in a bubble.
func open(t *testing.T, adjust func(*rows.Config)) *office {
	t.Helper()
	o := &office{t: t, s: newSpy(), log: &lines{}, done: make(chan struct{})}
	o.keeper = keep(t, o.s)
	cfg := rows.Config{
		Log:   quietLog(o.log),
		Start: func(r *rows.Row) { o.note(func() { o.started = append(o.started, r) }) },
		Freed: func(rs []*rows.Row) { o.note(func() { o.freed += len(rs) }) },
		Later: func(d time.Duration, _ bool) { o.note(func() { o.later = append(o.later, d) }) },
		Callback: func(_ context.Context, r *rows.Row) {
			o.note(func() { o.called = append(o.called, r.Record) })
		},
		Policy: rows.Policy{Count: 3, Interval: time.Minute, KeepFailed: time.Hour, OweCallback: true},
		Batch:  100, Suspects: 4,
	}
	if adjust != nil {
		adjust(&cfg)
	}
	o.Desk = rows.NewDesk(cfg)
	var work, last context.Context
	work, o.endWork = context.WithCancel(t.Context())
	last, o.endLast = context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		defer close(o.done)
		o.Run(work, last)
	}()
	t.Cleanup(func() {
		o.endWork()
		o.endLast()
		<-o.done
	})
	return o
}

func (o *office) note(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

// shut ends the work as an engine does, and waits for it.
func (o *office) shut() {
	o.Drain()
	o.Close()
	<-o.done
}

// insert commits rows of the number owner.
func (o *office) insert(n int, owner int64, delay time.Duration) []storage.ID {
	o.t.Helper()
	recs, list := make([]*storage.Record, n), make([]storage.ID, n)
	for i := range recs {
		list[i] = ids.New()
		recs[i] = &storage.Record{ID: list[i], Version: "v1", Topic: fmt.Sprint("topic", i%3), Owner: owner, Body: []byte("{}"), Delay: delay}
	}
	tx, err := o.s.Begin(o.t.Context())
	if err == nil {
		err = tx.Append(o.t.Context(), recs...)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return list
}

// admit lets the desk start all that is due, or has no living owner.
func (o *office) admit() {
	o.t.Helper()
	t, err := o.keeper.Wait(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	look := o.Hand.Begin()
	defer look.End()
	q := storage.Query{Lanes: []storage.Lane{{Limit: 10000}}}
	if _, err := t.TakeOver(o.t.Context(), q); err != nil {
		o.t.Fatal(err)
	}
	recs, _, err := t.Due(o.t.Context(), q)
	if err != nil {
		o.t.Fatal(err)
	}
	var taken []*storage.Record
	for _, rec := range recs {
		if look.Take(rec.ID) {
			if o.mark != nil {
				o.mark(rec)
			}
			taken = append(taken, rec)
		}
	}
	o.Admit(t, false, taken...)
	synctest.Wait()
}

// orphans inserts rows that were tried by deaths processes, which died of it
// (of the first death nothing is known but that its owner died).
func (o *office) orphans(n, deaths int) []storage.ID {
	o.t.Helper()
	var list []storage.ID
	for death := range deaths {
		m, err := o.s.Store.Join(o.t.Context(), storage.Instance{Box: storage.Outbox, Version: "v1", Lease: time.Second})
		if err != nil {
			o.t.Fatal(err)
		}
		if death == 0 {
			list = o.insert(n, m.Number(), 0)
		} else {
			recs, err := m.TakeOver(o.t.Context(), storage.Query{IDs: list})
			if err == nil {
				recs, err = m.Claim(o.t.Context(), recs...)
			}
			if err != nil || len(recs) != n {
				o.t.Fatalf("death %d: %d rows claimed, %v", death, len(recs), err)
			}
		}
		<-time.After(2 * time.Second)
	}
	return list
}

// lose ends the number behind the keeper's back, and waits until it has noticed.
func (o *office) lose() {
	o.t.Helper()
	old := o.keeper.Current()
	if err := old.Member.(*spyMember).Member.Leave(o.t.Context()); err != nil { //nolint:forcetypeassert // every member here
		o.t.Fatal(err)
	}
	<-old.Context().Done()
}

// take returns what was started since the last call.
func (o *office) take() []*rows.Row {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	rs := o.started
	o.started = nil
	return rs
}

// rows are the rows of the table.
func (o *office) table() map[storage.ID]*storage.Record {
	m := map[storage.ID]*storage.Record{}
	for _, rec := range o.s.Records(storage.Outbox) {
		m[rec.ID] = rec
	}
	return m
}

// open reports whether something is to be done on a row.
func isDue(rec *storage.Record) bool { return !rec.Position.DueAt.IsZero() }

func (o *office) succeed(rs ...*rows.Row) {
	for _, r := range rs {
		o.Settle(r, storage.Outcome{ID: r.ID, Kind: storage.Succeed, After: time.Hour})
	}
}

func (o *office) wantHand(n int) {
	o.t.Helper()
	synctest.Wait()
	if got := o.Hand.Len(); got != n {
		o.t.Errorf("%d rows in hand, want %d", got, n)
	}
}
