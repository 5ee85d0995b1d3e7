package rows

import (
	"context"
	"sync"
	"time"

	"github.com/capbus/gocap/storage"
)

// Pulse knows what the loops of an engine wait for, so that one that stands
// still is told from one that is idle or slow. Every call into a storage or a
// transport has a time limit; one that has not returned a lease after it is
// stuck: whoever made it will not go on. Safe for concurrent use; a nil Pulse
// watches nothing.
type Pulse struct {
	lease time.Duration
	// Busy reports whether the engine moves all the same: a handler runs. Set
	// before the loops run; nil: it does not.
	Busy func() bool
	// Many is how many loops make calls of EnterOne.
	Many int

	mu    sync.Mutex
	calls map[*call]struct{}
	last  time.Time // of the last check that counted
	trips int       // how often the rows were to be given up
}

// call is one that has not returned.
type call struct {
	what   string
	begun  time.Time
	limit  time.Time
	one    bool // of many loops
	late   int  // checks that found it past its limit
	logged bool
	given  bool // the rows were given up for it
}

// Stuck is a call that does not return.
type Stuck struct {
	What  string
	Since time.Time
}

// NewPulse returns a pulse for owners with that lease.
func NewPulse(lease time.Duration) *Pulse {
	return &Pulse{lease: lease, calls: map[*call]struct{}{}}
}

// Enter tells that a call begins which returns when ctx ends; the function that
// it returns tells that it has. Where ctx has no deadline nothing is watched.
func (p *Pulse) Enter(ctx context.Context, what string) (leave func()) {
	limit, ok := ctx.Deadline()
	if p == nil || !ok {
		return func() {}
	}
	return p.enter(&call{what: what, begun: time.Now(), limit: limit})
}

// EnterOne is as Enter, of one of Many loops that do the same: the engine goes
// on as long as one of them does.
func (p *Pulse) EnterOne(limit time.Duration, what string) (leave func()) {
	now := time.Now()
	return p.enter(&call{what: what, begun: now, limit: now.Add(limit), one: true})
}

func (p *Pulse) enter(c *call) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[c] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.calls, c)
	}
}

// stuckChecks is how many checks must have found a call past its limit: in a
// process that was frozen all calls are late at once, and none is stuck.
const stuckChecks = 3

// check looks at the calls. It returns those that are found stuck for the first
// time, and how often the rows were to be given up so far. Keepers that share
// the pulse all call it.
func (p *Pulse) check(now time.Time) (found []Stuck, trips int) {
	if p == nil {
		return nil, 0
	}
	busy := p.Busy != nil && p.Busy()
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := now.Sub(p.last) >= p.lease/4
	if counts {
		p.last = now
	}
	trip := false
	for c := range p.calls {
		if counts && now.After(c.limit) {
			c.late++
		}
		if !p.stuck(c, now) {
			continue
		}
		if !c.logged {
			c.logged = true
			found = append(found, Stuck{c.what, c.begun})
		}
		if !c.given && !busy {
			c.given, trip = true, true
		}
	}
	if trip {
		p.trips++
	}
	return found, p.trips
}

func (p *Pulse) stuck(c *call, now time.Time) bool {
	return c.late >= stuckChecks && now.Sub(c.limit) >= p.lease
}

// blocked reports whether the engine cannot work: to own rows would be to keep
// them from others.
func (p *Pulse) blocked() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	many := 0
	for c := range p.calls {
		if !c.given {
			continue
		}
		if !c.one {
			return true
		}
		many++
	}
	return many > 0 && many >= p.Many
}

// Stuck returns the call that has been stuck for longest.
func (p *Pulse) Stuck() (s Stuck, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.calls {
		if c.late >= stuckChecks && (!ok || c.begun.Before(s.Since)) {
			s, ok = Stuck{c.what, c.begun}, true
		}
	}
	return s, ok
}

// The calls of a Tenure are those of its Member, watched.

// Accept implements storage.Member.
func (t *Tenure) Accept(ctx context.Context, recs ...*storage.Record) ([]*storage.Record, error) {
	defer t.pulse.Enter(ctx, "storing messages that came")()
	return t.Member.Accept(ctx, recs...)
}

// Due implements storage.Member.
func (t *Tenure) Due(ctx context.Context, q storage.Query) ([]*storage.Record, time.Duration, error) {
	defer t.pulse.Enter(ctx, "reading due rows")()
	return t.Member.Due(ctx, q)
}

// TakeOver implements storage.Member.
func (t *Tenure) TakeOver(ctx context.Context, q storage.Query) ([]*storage.Record, error) {
	defer t.pulse.Enter(ctx, "taking over rows")()
	return t.Member.TakeOver(ctx, q)
}

// Claim implements storage.Member.
func (t *Tenure) Claim(ctx context.Context, recs ...*storage.Record) ([]*storage.Record, error) {
	defer t.pulse.Enter(ctx, "claiming rows")()
	return t.Member.Claim(ctx, recs...)
}

// Settle implements storage.Member.
func (t *Tenure) Settle(ctx context.Context, outcomes ...storage.Outcome) ([]storage.ID, error) {
	defer t.pulse.Enter(ctx, "storing outcomes")()
	return t.Member.Settle(ctx, outcomes...)
}

// Unmatched implements storage.Member.
func (t *Tenure) Unmatched(ctx context.Context, groups []string, after int64, limit int) ([]*storage.Record, error) {
	defer t.pulse.Enter(ctx, "reading unmatched rows")()
	return t.Member.Unmatched(ctx, groups, after, limit)
}

// Split implements storage.Member.
func (t *Tenure) Split(ctx context.Context, row *storage.Record, into ...*storage.Record) ([]*storage.Record, error) {
	defer t.pulse.Enter(ctx, "splitting an unmatched row")()
	return t.Member.Split(ctx, row, into...)
}
