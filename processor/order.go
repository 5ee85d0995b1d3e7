package processor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/backoff"
	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

const (
	// maxAsks is the most keys of a lane that are remembered to be looked at; the
	// scan finds the others.
	maxAsks = 10000
	// While another living instance works on the first row of a key, the key is
	// looked at again so often, for so long; then the scan finds it.
	foreignFirst, foreignLast, foreignFor = 5 * time.Millisecond, 50 * time.Millisecond, time.Second
	// rarely is how many scans pass a lane by in which keys are not expected.
	rarely = 10
)

// KeyLane is a lane whose rows may have keys.
type KeyLane struct {
	Group, Subscriber string
	Limit             int  // rows with a key that there is room for now
	Rare              bool // rows with a key are not expected
}

// KeyTaker is the engine that works on the rows which Order finds.
type KeyTaker interface {
	// KeyRoom returns its lanes, whether they have room or not; none while nothing
	// is taken at all.
	KeyRoom() []KeyLane
	// Admit takes over rows that are in hand. It does not block.
	Admit(t *rows.Tenure, recs []*storage.Record)
	// KeysFreed is signalled when room has appeared.
	KeysFreed() <-chan struct{}
}

// OrderConfig configures an Order. All fields are required.
type OrderConfig struct {
	Keeper       *rows.Keeper
	Hand         *rows.Hand
	Taker        KeyTaker
	Log          *quiet.Logger
	PollInterval time.Duration
	BatchSize    int // most keys looked at at once
	MaxBytes     int // most bytes of headers and bodies read at once
}

// Order finds the rows of one table that have a key, and gives them to its Taker
// so that at most one of a key is in hand, and only after a look has shown it as
// the first unfinished one. It looks at a key when it is asked to (a row was
// published, received, or has become final), and once a PollInterval at all
// keys, a page at a time, for at most a tenth of the time; not at all while
// NeedRetry glances and sees none.
type Order struct {
	cfg  OrderConfig
	wake chan struct{}

	// Known to Run alone.
	tenure   *rows.Tenure
	start    time.Time // when the next scan begins
	begun    time.Time // when this one did
	spent    time.Duration
	took     time.Duration // the last one
	earliest time.Time     // before that none is begun
	rest     time.Time     // after an error: no look before
	rounds   int
	must     bool               // the next scan was asked for
	cursors  map[laneKey]string // of the lanes that the scan has not read to the end
	backoff  backoff.Backoff

	mu     sync.Mutex
	lanes  map[laneKey]*keyState
	kicked bool
}

// keyState is what is known of the keys of a lane.
type keyState struct {
	asks asks
	busy map[string]storage.ID // the row of a key that is in hand
}

// NewOrder returns an Order; its Run does the work.
func NewOrder(cfg OrderConfig) *Order {
	o := &Order{
		cfg: cfg, wake: make(chan struct{}, 1), lanes: map[laneKey]*keyState{}, cursors: map[laneKey]string{},
		backoff: backoff.Backoff{Min: 200 * time.Millisecond, Max: 2 * time.Second},
	}
	cfg.Keeper.OnKeys(o.Kick)
	return o
}

// Ask asks for a look at keys of a lane of which rows are there. It does not
// block.
func (o *Order) Ask(group, subscriber string, keys ...string) {
	o.ask(laneKey{group, subscriber}, askNow(), keys...)
}

func askNow() ask {
	now := time.Now()
	return ask{at: now, wait: foreignFirst, most: foreignLast, ends: now.Add(foreignFor)}
}

// expect asks for a look at keys of the outbox of which rows may appear for so
// long.
func (o *Order) expect(keys []string, first, most, long time.Duration) {
	now := time.Now()
	o.ask(laneKey{}, ask{at: now, missing: true, wait: first, most: most, ends: now.Add(long)}, keys...)
}

func (o *Order) ask(lane laneKey, a ask, keys ...string) {
	o.mu.Lock()
	s := o.state(lane)
	for _, a.key = range keys {
		if !s.asks.put(a) {
			o.kicked = true
		}
	}
	o.mu.Unlock()
	signal(o.wake)
}

// Kick asks for a scan now. It does not block.
func (o *Order) Kick() {
	o.mu.Lock()
	o.kicked = true
	o.mu.Unlock()
	signal(o.wake)
}

// Final implements rows.Keyed: the key of the row is looked at once more.
func (o *Order) Final(r *rows.Row) {
	if o.free(r) {
		a := askNow()
		a.next = true
		o.ask(keyOfRow(r.Record), a, r.Key)
	}
}

// Left implements rows.Keyed.
func (o *Order) Left(r *rows.Row, in time.Duration) {
	if o.free(r) && in >= 0 {
		o.ask(keyOfRow(r.Record), ask{at: time.Now().Add(in)}, r.Key)
	}
}

// free reports whether the row was that of its key.
func (o *Order) free(r *rows.Row) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.state(keyOfRow(r.Record))
	if id, busy := s.busy[r.Key]; !busy || id != r.ID {
		return false
	}
	delete(s.busy, r.Key)
	return true
}

// state returns that of a lane; o.mu is held.
func (o *Order) state(lane laneKey) *keyState {
	s := o.lanes[lane]
	if s == nil {
		s = &keyState{busy: map[string]storage.ID{}}
		o.lanes[lane] = s
	}
	return s
}

// Run works until ctx ends.
func (o *Order) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t, err := o.cfg.Keeper.Wait(ctx)
		if err != nil {
			return
		}
		timer.Reset(o.round(ctx, t))
		select {
		case <-ctx.Done():
			return
		case <-t.Context().Done():
		case <-timer.C:
		case <-o.cfg.Taker.KeysFreed():
		case <-o.wake:
		}
	}
}

// round looks at what was asked for, and at a page of each lane while a scan is
// under way, and returns how long to wait.
func (o *Order) round(ctx context.Context, t *rows.Tenure) time.Duration {
	if o.tenure != t {
		o.tenure, o.start, o.earliest = t, time.Time{}, time.Time{}
		clear(o.cursors)
	}
	if rest := time.Until(o.rest); rest > 0 {
		return rest
	}
	lanes := o.cfg.Taker.KeyRoom()
	if len(lanes) == 0 {
		return o.cfg.PollInterval
	}
	o.begin(lanes)
	err := o.asked(ctx, t, lanes)
	if err == nil {
		err = o.scan(ctx, t, lanes)
	}
	switch {
	case ctx.Err() != nil || t.Over():
		return o.cfg.PollInterval
	case err != nil:
		o.cfg.Log.Warn(ctx, "rows with a key not read, trying again", "", slog.Any("err", err))
		o.rest = time.Now().Add(o.backoff.Next())
		return time.Until(o.rest)
	}
	o.backoff.Reset()
	return o.wait(lanes)
}

// begin begins a scan when it is time.
func (o *Order) begin(lanes []KeyLane) {
	o.mu.Lock()
	if o.must = o.must || o.kicked; o.kicked && o.start.After(o.earliest) {
		o.start = o.earliest
	}
	o.kicked = false
	o.mu.Unlock()
	now := time.Now()
	if len(o.cursors) > 0 || now.Before(o.start) {
		return
	}
	if until, none := o.nothing(lanes); none && !o.must {
		o.start = until // there is a newer glance by then, or a scan
		return
	}
	o.must = false
	o.begun, o.spent = now, 0
	for _, l := range lanes {
		if !l.Rare || o.rounds%rarely == 0 {
			o.cursors[laneKey{l.Group, l.Subscriber}] = ""
		}
	}
	if o.rounds++; len(o.cursors) == 0 {
		o.end()
	}
}

// nothing reports that a glance has just seen no keys.
func (o *Order) nothing(room []KeyLane) (until time.Time, ok bool) {
	lanes := make([]storage.Lane, len(room))
	for i, l := range room {
		lanes[i] = storage.Lane{Group: l.Group, Subscriber: l.Subscriber}
	}
	return o.tenure.NoKeys(lanes)
}

// end ends a scan that has read every lane.
func (o *Order) end() {
	o.earliest = o.begun.Add(o.spent + 9*min(o.spent, o.took)) // one that took long once puts off no other
	o.took = o.spent
	o.start = later(o.earliest, o.begun.Add(o.cfg.PollInterval))
}

// wait returns how long nothing is to be done.
func (o *Order) wait(lanes []KeyLane) time.Duration {
	next := o.start
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.cursors) > 0 { // of lanes without room
		next = time.Now().Add(o.cfg.PollInterval)
	}
	for _, l := range lanes {
		key := laneKey{l.Group, l.Subscriber}
		if _, some := o.cursors[key]; some && l.Limit > 0 {
			return 0
		}
		if s := o.lanes[key]; l.Limit > 0 && s != nil && len(s.asks.order) > 0 && s.asks.order[0].at.Before(next) {
			next = s.asks.order[0].at
		}
	}
	return max(0, time.Until(next))
}
