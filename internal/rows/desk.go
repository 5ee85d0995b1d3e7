package rows

import (
	"context"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/storage"
)

// MaxTakeovers is the number of deaths of its process after which a row ends
// failed: a message that kills whoever handles it must not do so for ever.
const MaxTakeovers = 5

// Row is a row in hand.
type Row struct {
	*storage.Record

	Tenure *Tenure // under whose number it is worked on
	Fresh  bool    // inserted by this process, not found by a look
	Note   any     // the engine's own

	claim claim
	place *place // at the gate; nil: it came through none, or waits
}

// claim is how a row was started.
type claim uint8

const (
	plain   claim = iota // no write was needed
	planned              // delayed, made scheduled
	suspect              // its process died once; claimed with some others
	alone                // more than once; claimed alone
)

// Config of a Desk.
type Config struct {
	Log *quiet.Logger
	// Start gets a row to work on; it does not block. The engine answers with
	// Settle, Done or GiveBack.
	Start func(*Row)
	// Callback is made for a final failed row, off the engine's path; nil: none
	// is configured. A panic in it is contained by the caller of this package.
	Callback func(context.Context, *Row)
	// Freed is called after rows have left the hand; it does not block.
	Freed func([]*Row)
	// Later is told that a row will be due in so long, and whether a look has
	// passed it while it was in hand; it does not block.
	Later func(in time.Duration, passed bool)
	// Settled is told that an outcome is stored, or, not stored, that the row is
	// another's; may be nil.
	Settled func(rec *storage.Record, o storage.Outcome, stored bool)
	// Policy decides how rows end that killed their process too often.
	Policy Policy
	// Batch is the most outcomes written at once; Suspects is how many rows of
	// dead instances may be under way at once, of each group and subscriber.
	Batch, Suspects int
	// Probation is how long this process must have lived before it tries a row
	// again that saw two deaths or more, and how long a row of a dead instance
	// must have run until others need not wait for its end.
	Probation time.Duration
	// Waiting is the most rows that wait in hand for their callback, and the
	// most, of each group and subscriber, that wait to be tried alone; more of
	// them wait in the table, so that they do not take the room of others. 0:
	// 100.
	Waiting int
}

// Keyed is told of rows in hand that have a key, also of those that it has not
// found. It does not block.
type Keyed interface {
	// Final tells that the row is final, or another's: the next one of its key may
	// go. It may be told again.
	Final(r *Row)
	// Left tells that the row has left the hand unfinished, and is due again in so
	// long; negative: that is not known.
	Left(r *Row, in time.Duration)
}

// Desk is the life of rows in hand: it starts them, stores their outcomes, and
// makes the callback of those that failed for good. Safe for concurrent use.
type Desk struct {
	Hand Hand

	cfg       Config
	settler   *settler
	gate      gate
	callbacks callbacks

	closing chan struct{} // closed by Close
	keys    []Keyed       // each knows which rows are its own

	// mu is held, for reading, across Config.Start, which does not block: so
	// nothing starts once Drain has returned.
	mu       sync.RWMutex
	draining bool
}

// NewDesk returns a desk; its Run does the work.
func NewDesk(cfg Config) *Desk {
	if cfg.Waiting == 0 {
		cfg.Waiting = 100
	}
	d := &Desk{cfg: cfg, closing: make(chan struct{})}
	d.settler = newSettler(cfg.Log, cfg.Batch)
	d.gate = gate{desk: d, wake: make(chan struct{}, 1), lanes: map[laneKey]*lane{}, under: map[*Row]struct{}{}}
	d.callbacks = callbacks{desk: d, wake: make(chan struct{}, 1)}
	return d
}

// Order tells k, too, of rows with a key. It is called before Run.
func (d *Desk) Order(k Keyed) { d.keys = append(d.keys, k) }

// Run works until Close is called and all outcomes are stored. Rows are started
// and callbacks made on the context work; outcomes are stored until last ends.
// When work ends, rows of dead instances are released whose outcome has not
// come: nothing is charged for a stop, even if a handler does not return.
func (d *Desk) Run(work, last context.Context) {
	var loops, all sync.WaitGroup
	loops.Go(func() { d.gate.run(work) })
	var callbacks func()
	callbacks = func() { d.callbacks.run(work, func() { loops.Go(callbacks) }) }
	loops.Go(callbacks)
	all.Go(func() { d.settler.run(last) })
	loops.Wait() // a callback that has just returned still stores that it was made
	select {     // and so does work that was cut when its context ended
	case <-d.closing:
	case <-last.Done():
	}
	d.settler.close()
	all.Wait()
}

// Close lets Run end once the outcomes given so far are stored. It is called
// once, after Drain.
func (d *Desk) Close() { close(d.closing) }

// Drain stops starting rows: those that wait leave the hand as they are. No row
// is started once it has returned.
func (d *Desk) Drain() {
	d.mu.Lock()
	d.draining = true
	d.mu.Unlock()
	d.gate.drop()
	d.callbacks.drop()
}

// Draining reports whether Drain was called.
func (d *Desk) Draining() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.draining
}

// Admit starts rows that are in hand, by a look or, fresh, by an insert.
func (d *Desk) Admit(t *Tenure, fresh bool, recs ...*storage.Record) {
	for _, rec := range recs {
		r := &Row{Record: rec, Tenure: t, Fresh: fresh}
		switch {
		case rec.Final && (d.cfg.Callback == nil || rec.Takeovers >= MaxTakeovers):
			d.Settle(r, storage.Outcome{ID: rec.ID, Kind: storage.CallbackDone})
		case rec.Takeovers >= MaxTakeovers:
			d.Settle(r, d.cfg.Policy.Final(rec, "its process died each time it was tried", false))
		case rec.Takeovers > 0 || rec.Status == storage.Delayed:
			d.gate.add(r)
		default:
			d.start(r)
		}
	}
}

func (d *Desk) start(r *Row) {
	if !d.started(r) {
		d.GiveBack(r)
	}
}

func (d *Desk) started(r *Row) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	switch {
	case d.draining || r.Tenure.Over():
		return false
	case r.Final:
		d.callbacks.add(r)
	default:
		d.cfg.Start(r)
	}
	return true
}

// Settle stores the outcome of a row. A retry that is due at once starts again
// in the same hands when it is stored.
func (d *Desk) Settle(r *Row, o storage.Outcome) {
	d.gate.unclaim(r)
	d.settler.add(settlement{row: r, outcome: o, done: func(stored bool) { d.settled(r, o, stored) }})
}

func (d *Desk) settled(r *Row, o storage.Outcome, stored bool) {
	d.gate.ended(r)
	d.tell(r, o, stored)
	switch {
	case !stored:
		d.leave(r)
	case o.Kind == storage.Retry && o.After <= 0:
		again := *r.Record
		again.Status, again.Takeovers = storage.Failed, 0
		if o.Attempt > 0 {
			again.Retries = o.Attempt
		}
		again.LastError = o.Error
		d.start(&Row{Record: &again, Tenure: r.Tenure, Fresh: r.Fresh})
	case o.Kind == storage.Fail && o.Callback && d.cfg.Callback != nil:
		final := *r.Record
		final.Final, final.Status, final.LastError = true, storage.Failed, o.Error
		if o.Attempt > 0 {
			final.Retries = o.Attempt
		}
		d.final(r)
		d.start(&Row{Record: &final, Tenure: r.Tenure, Fresh: r.Fresh})
	case o.Kind == storage.Retry || o.Kind == storage.Postpone:
		passed := d.Hand.LeaveDue(r.ID)
		d.cfg.Freed([]*Row{r})
		if r.Key != "" && len(d.keys) > 0 {
			d.left(r, o.After)
			return
		}
		d.cfg.Later(o.After, passed)
	case o.Kind == storage.Release:
		d.leave(r)
	default:
		d.Done(r)
	}
}

func (d *Desk) final(r *Row) {
	if r.Key == "" {
		return
	}
	for _, k := range d.keys {
		k.Final(r)
	}
}

func (d *Desk) left(r *Row, in time.Duration) {
	if r.Key == "" {
		return
	}
	for _, k := range d.keys {
		k.Left(r, in)
	}
}

// tell calls the hook.
func (d *Desk) tell(r *Row, o storage.Outcome, stored bool) {
	if d.cfg.Settled != nil && o.Kind != storage.Release {
		d.cfg.Settled(r.Record, o, stored)
	}
}

// Committed takes a row out of the hand whose success was stored in the
// transaction of its handler.
func (d *Desk) Committed(r *Row, o storage.Outcome) {
	d.tell(r, o, true)
	d.Done(r)
}

// Done takes a row out of the hand whose outcome is stored already, or which
// another instance has.
func (d *Desk) Done(r *Row) {
	d.gate.ended(r)
	d.Hand.Leave(r.ID)
	d.cfg.Freed([]*Row{r})
	d.final(r)
}

// GiveBack takes a row out of the hand that was not worked on, or whose work
// was cut: nothing is counted, and it is due as before.
func (d *Desk) GiveBack(r *Row) {
	if d.gate.unclaim(r) {
		d.Settle(r, storage.Outcome{ID: r.ID, Kind: storage.Release, Claimed: true})
		return
	}
	d.leave(r)
}

// leave takes rows out of the hand that are as unfinished as before. Their places at the gate are free then,
// whatever became of them.
func (d *Desk) leave(rs ...*Row) {
	for _, r := range rs {
		d.gate.ended(r)
		d.Hand.Leave(r.ID)
	}
	d.cfg.Freed(rs)
	for _, r := range rs {
		d.left(r, -1)
	}
}
