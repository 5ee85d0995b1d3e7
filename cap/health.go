package cap

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/capbus/gocap"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

// healthTimeout bounds a check of the storage or the transport.
const healthTimeout = 3 * time.Second

// probes are what Health asks of others.
type probes struct {
	storage, transport probe[struct{}]
	waiting            probe[waiting]
}

func newProbes() *probes {
	return &probes{
		storage: probe[struct{}]{limit: healthTimeout}, transport: probe[struct{}]{limit: healthTimeout},
		waiting: probe[waiting]{limit: healthTimeout},
	}
}

// waiting is what waits in the tables.
type waiting struct {
	outbox, inbox []storage.Waiting
	versions      []gocap.VersionHealth
}

// Health tells how the bus fares, before Start and after Stop, too. It returns
// within a few seconds, and by the end of ctx, whatever hangs; what could not be
// found out is told as an error in it. It costs the checks of storage and
// transport and, on a storage that is a storage.Inspector, four short reads;
// calls at the same time share them.
func (b *Bus) Health(ctx context.Context) gocap.Health {
	var h gocap.Health
	var w waiting
	var all sync.WaitGroup
	all.Go(func() { h.Storage = errText(b.checkStorage(ctx)) })
	all.Go(func() { h.Transport = errText(b.checkTransport(ctx)) })
	all.Go(func() {
		var err error
		w, err = b.probes.waiting.ask(ctx, b.readWaiting)
		h.Waiting = errText(err)
	})
	all.Wait()
	if e := b.engines.get(); e != nil {
		e.health(&h)
	}
	addWaiting(&h, w)
	b.judge(&h)
	return h
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (b *Bus) checkStorage(ctx context.Context) error {
	_, err := b.probes.storage.ask(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.opts.Storage.Check(ctx)
	})
	return err
}

func (b *Bus) checkTransport(ctx context.Context) error {
	if b.opts.Transport == nil {
		return nil
	}
	_, err := b.probes.transport.ask(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.opts.Transport.Check(ctx)
	})
	return err
}

// readWaiting reads what a storage can tell.
func (b *Bus) readWaiting(ctx context.Context) (w waiting, err error) {
	ins, ok := b.opts.Storage.(storage.Inspector)
	if !ok {
		return w, nil
	}
	if w.outbox, err = ins.Waiting(ctx, storage.Outbox, b.opts.Version, countMost); err != nil {
		return waiting{}, err
	}
	if w.inbox, err = ins.Waiting(ctx, storage.Inbox, b.opts.Version, countMost); err != nil {
		return waiting{}, err
	}
	w.versions, err = b.otherVersions(ctx, ins)
	return w, err
}

// addWaiting puts what waits beside what the engines tell.
func addWaiting(h *gocap.Health, w waiting) {
	for _, o := range w.outbox {
		h.Unsent = gocap.Backlog{Overdue: o.Overdue, Age: o.Age}
	}
	for _, in := range w.inbox {
		i := slices.IndexFunc(h.Groups, func(g gocap.GroupHealth) bool { return g.Name == in.Group })
		if i < 0 {
			i = len(h.Groups)
			h.Groups = append(h.Groups, gocap.GroupHealth{Name: in.Group})
		}
		h.Groups[i].Unhandled, h.Groups[i].Unmatched = gocap.Backlog{Overdue: in.Overdue, Age: in.Age}, in.Unmatched
	}
	slices.SortFunc(h.Groups, func(a, b gocap.GroupHealth) int { return cmp.Compare(a.Name, b.Name) })
	h.Versions = w.versions
}

// health tells how the engines fare. It waits for nothing.
func (e *engines) health(h *gocap.Health) {
	h.Running = true
	h.Sending = engineHealth(e.sending, e.dispatcher.Hand())
	h.Handling = engineHealth(e.handling, e.consumer.Hand())
	h.BrokerAway = wall(e.dispatcher.BrokerAway())
	var longest gocap.RunHealth
	for _, s := range e.consumer.States() {
		h.Groups = append(h.Groups, gocap.GroupHealth{
			Name: s.Name, Served: true, Receivers: s.Receivers, Paused: wall(s.Paused),
			Failing: wall(s.Failing), LastError: s.LastError, Handlers: s.Running,
		})
		if r := s.Run; !r.Since.IsZero() && (longest.Since.IsZero() || r.Since.Before(longest.Since)) {
			longest = gocap.RunHealth{Topic: r.Topic, Group: r.Group, Subscriber: r.Subscriber, MessageID: r.MessageID, Since: r.Since}
		}
	}
	if !longest.Since.IsZero() {
		longest.Since = wall(longest.Since)
		h.LongestRun = &longest
	}
}

func engineHealth(k *rows.Keeper, hand *rows.Hand) gocap.EngineHealth {
	h := gocap.EngineHealth{InHand: hand.Len()}
	h.Living, h.Resting = k.Living()
	if s, stuck := k.Pulse().Stuck(); stuck {
		h.Stuck, h.Since = s.What, wall(s.Since)
	}
	return h
}

// wall is a moment for others to read.
func wall(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Round(0)
}

// judge draws the verdicts.
func (b *Bus) judge(h *gocap.Health) {
	reason := func(bad bool, format string, args ...any) {
		if bad {
			h.Reasons = append(h.Reasons, fmt.Sprintf(format, args...))
		}
	}
	publishes := b.opts.Transport == nil // and no more: it is never started
	h.Ready = h.Storage == "" && (h.Running || publishes)
	h.Alive = h.Sending.Stuck == "" && h.Handling.Stuck == ""
	reason(!h.Running && !publishes, "the bus does not run")
	reason(h.Storage != "", "storage: %s", h.Storage)
	reason(h.Transport != "", "transport: %s", h.Transport)
	reason(h.Waiting != "" && h.Storage == "", "what waits could not be read: %s", h.Waiting)
	reason(!h.BrokerAway.IsZero(), "the broker has been away since %s", h.BrokerAway.Format(time.RFC3339))
	for what, e := range map[string]gocap.EngineHealth{"sending": h.Sending, "handling": h.Handling} {
		reason(e.Stuck != "", "%s stands still since %s: %s does not return; restart the process", what, e.Since.Format(time.RFC3339), e.Stuck)
		reason(h.Running && !e.Living && !e.Resting, "%s has no lease: nothing is begun until the heartbeat can be written", what)
	}
	for _, g := range h.Groups {
		reason(!g.Failing.IsZero(), "group %s receives nothing since %s: %s", g.Name, g.Failing.Format(time.RFC3339), g.LastError)
		if g.Unmatched > 0 {
			h.Notes = append(h.Notes, fmt.Sprintf("%d messages of group %s have no subscription", g.Unmatched, g.Name))
		}
	}
	for _, v := range h.Versions {
		if !v.Served {
			h.Notes = append(h.Notes, fmt.Sprintf("%d rows %s of version %s, which no instance serves (Options.AlsoVersions takes them over)", v.Rows, v.Box, v.Version))
		}
	}
	slices.Sort(h.Reasons)
	h.OK = len(h.Reasons) == 0
}
