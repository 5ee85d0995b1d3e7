package storagetest

import (
	"context"
	"errors"
	"sync"

	"github.com/capbus/gocap/storage"
)

func memberCases() []testCase {
	const destination = "Join is refused with ErrDestination while a living instance of the same box and version has another pair. Not compared when Destination is empty."
	return []testCase{
		{"members/number", "Number identifies the member: positive and random.", memberNumber},
		{"members/beat", "Beat renews the lease.", memberBeat},
		{"members/beat-after-leave", "ErrLost: the member was declared dead or has left; join again.", memberBeatLeft},
		{"members/beat-after-death", "An ended number never lives again. ErrLost: the member was declared dead.", memberBeatDead},
		{"members/leave", "Leave ends the member: what it still owns is anyone's. It rewrites no row.", memberLeave},
		{"members/settle-after-leave", "Every change is conditional on the member owning the row.", memberSettleLeft},
		{"members/several", "Its methods may be called concurrently.", memberSeveral},
		{"members/destination", destination, memberDestination},
		{"members/destination-after-death", destination, memberDestinationDead},
		{"members/destination-empty", destination, memberDestinationEmpty},
		{"check", "Check reports whether the storage can be used now.", check},
		{"migrate", "Migrate may be called by many instances at once and does nothing when there is nothing to do.", migrate},
	}
}

func memberNumber(e *env) {
	seen := map[int64]bool{}
	for range 10 {
		for _, box := range []storage.Box{storage.Outbox, storage.Inbox} {
			m := e.join(box)
			if n := m.Number(); n <= 0 || seen[n] || n != m.Number() {
				e.Errorf("number %d is not positive, or not the member's own", n)
			}
			seen[m.Number()] = true
		}
	}
}

func memberBeat(e *env) {
	m := e.join(storage.Outbox)
	for range 3 {
		e.must(m.Beat(e.op()), "beat")
	}
}

func wantLost(e *env, what string, err error) {
	e.Helper()
	if !errors.Is(err, storage.ErrLost) {
		e.Errorf("%s: %v, want ErrLost", what, err)
	}
}

func memberBeatLeft(e *env) {
	m := e.join(storage.Outbox)
	e.leave(m)
	wantLost(e, "beat after leave", m.Beat(e.op()))
	e.must(m.Leave(e.op()), "leave again")
	wantLost(e, "beat after two leaves", m.Beat(e.op()))
}

func memberBeatDead(e *env) {
	m, heir := e.mortal(storage.Inbox), e.join(storage.Inbox)
	rec := e.accepted(m)
	e.inherit(heir, rec)
	wantLost(e, "beat after death", m.Beat(e.op()))
	e.must(m.Leave(e.op()), "leave after death")
	wantLost(e, "beat after death and leave", m.Beat(e.op()))
	late := e.accepted(m) // its goroutines may not know yet
	got := e.takeOver(heir, byID(late))
	e.wantRows("taken over from the dead", got, late)
	for _, r := range got {
		e.wantTakeovers("written after its death", r, heir, 1)
	}
}

func memberLeave(e *env) {
	m, heir := e.join(storage.Inbox), e.join(storage.Inbox)
	rec := e.accepted(m)
	e.leave(m)
	if r := e.row(m, rec); r == nil || r.Owner != m.Number() {
		e.Errorf("leave has rewritten a row")
	}
	e.wantRows("anyone's", e.takeOver(heir, allOf("g", "s")), rec)
}

func memberSettleLeft(e *env) {
	m, heir := e.join(storage.Inbox), e.join(storage.Inbox)
	rec := e.accepted(m)
	e.leave(m)
	e.mustSettle(m, succeed(rec)) // a last settle of rows that nobody has taken
	e.wantRows("taken over", e.takeOver(heir, byID(rec)))
}

func memberSeveral(e *env) {
	const n = 6
	m := e.join(storage.Inbox)
	recs := e.deliveries(n*5, "g", "s")
	ctx := e.op()
	var mu sync.Mutex
	var errs []error
	together(n, func(i int) {
		mine := recs[i*5 : i*5+5]
		fresh, err := m.Accept(ctx, mine...)
		_, _, err2 := m.Due(ctx, allOf("g", "s"))
		lost, err3 := m.Settle(ctx, succeed(mine[0]), storage.Outcome{ID: mine[1].ID, Kind: storage.Retry})
		err4 := m.Beat(ctx)
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err, err2, err3, err4)
		if len(fresh) != 5 || len(lost) != 0 {
			e.Errorf("%d rows fresh, %d lost, want 5 and none", len(fresh), len(lost))
		}
	})
	e.must(errors.Join(errs...), "concurrent calls")
	if got := e.due(m, allOf("g", "s")); len(got) != n*4 {
		e.Errorf("%d rows are due, want %d", len(got), n*4)
	}
}

// to describes an instance with a destination.
func (e *env) to(box storage.Box, transport, destination string) storage.Instance {
	return storage.Instance{Box: box, Version: e.version, Lease: longLease, Transport: transport, Destination: destination}
}

func (e *env) joinAs(in storage.Instance, want error) storage.Member {
	e.Helper()
	m, err := e.store.Join(e.op(), in)
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		e.Errorf("join as %+v: %v, want %v", in, err, want)
	}
	return m
}

func memberDestination(e *env) {
	m := e.joinAs(e.to(storage.Outbox, "rabbitmq", "exchange-a"), nil)
	e.joinAs(e.to(storage.Outbox, "rabbitmq", "exchange-b"), storage.ErrDestination)
	e.joinAs(e.to(storage.Outbox, "kafka", "exchange-a"), storage.ErrDestination)
	same := e.joinAs(e.to(storage.Outbox, "rabbitmq", "exchange-a"), nil)
	e.joinAs(e.to(storage.Inbox, "rabbitmq", "exchange-b"), nil)
	e.joinAs(e.other().to(storage.Outbox, "rabbitmq", "exchange-b"), nil)
	if m == nil || same == nil {
		return
	}
	e.leave(m)
	e.joinAs(e.to(storage.Outbox, "rabbitmq", "exchange-b"), storage.ErrDestination)
	e.leave(same)
	e.joinAs(e.to(storage.Outbox, "rabbitmq", "exchange-b"), nil)
}

func memberDestinationDead(e *env) {
	in := e.to(storage.Outbox, "rabbitmq", "exchange-a")
	in.Lease = e.cfg.lease
	e.joinAs(in, nil)
	e.eventually("an instance with another destination may join", func() bool {
		_, err := e.store.Join(e.op(), e.to(storage.Outbox, "rabbitmq", "exchange-b"))
		if err != nil && !errors.Is(err, storage.ErrDestination) {
			e.Fatalf("join: %v", err)
		}
		return err == nil
	})
}

func memberDestinationEmpty(e *env) {
	e.joinAs(e.to(storage.Outbox, "rabbitmq", ""), nil)
	e.joinAs(e.to(storage.Outbox, "rabbitmq", "exchange-a"), nil)
	e.joinAs(e.to(storage.Outbox, "kafka", ""), nil)
	e.joinAs(e.to(storage.Outbox, "kafka", "exchange-a"), storage.ErrDestination)
}

func check(e *env) {
	e.must(e.store.Check(e.op()), "check")
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	_ = e.store.Check(ctx) // it may say so, it must not hang
}

func migrate(e *env) {
	m, ok := e.store.(storage.Migrator)
	if !ok {
		return
	}
	rec := e.published(nil)
	errs := make([]error, 4)
	ctx := e.op()
	together(len(errs), func(i int) { errs[i] = m.Migrate(ctx) })
	e.must(errors.Join(errs...), "migrate again")
	e.wantRows("after the migrations", e.takeOver(e.join(storage.Outbox), byID(rec)), rec)
}
