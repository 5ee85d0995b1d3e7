package processor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/backoff"
	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

// Taker is the engine that works on the rows which NeedRetry finds: the
// Dispatcher for the outbox, the consumer for the inbox.
type Taker interface {
	// Room returns the lanes that can take rows now, each with its Limit.
	Room() []storage.Lane
	// Admit takes over rows that are in hand. It does not block.
	Admit(t *rows.Tenure, recs []*storage.Record)
	// Freed is signalled when room has appeared.
	Freed() <-chan struct{}
}

// NeedRetryConfig configures a NeedRetry. All fields are required.
type NeedRetryConfig struct {
	Keeper       *rows.Keeper
	Hand         *rows.Hand
	Taker        Taker
	Log          *quiet.Logger
	PollInterval time.Duration
	BatchSize    int // most rows of a lane read at once
	MaxBytes     int // most bytes of headers and bodies read at once
	// TakenOver is told of rows that were taken over; may be nil.
	TakenOver func(ctx context.Context, recs []*storage.Record)
	Locked    bool // rows without a living owner are looked for under the storage's locks
}

// NeedRetry finds the rows of one table that need another look: this
// instance's own that are due (failed, delayed, beyond what was in memory), and
// those that have no living owner. A full batch is followed by the next at
// once, behind its last row; the scan from the very start comes once a
// PollInterval, or when it is asked for, and takes at most a tenth of the time.
// After one that has found nothing, a glance comes first.
type NeedRetry struct {
	cfg  NeedRetryConfig
	wake chan struct{}

	// Known to Run alone.
	tenure   *rows.Tenure
	lanes    map[laneKey]*laneState
	start    time.Time     // when the next scan from the start is due
	took     time.Duration // of the last scan from the start
	earliest time.Time     // before that it is not begun
	rest     time.Time     // after an error: no look before
	orphan   bool          // the last takeover came back full
	quiet    bool          // the last scan from the start has found nothing
	timed    time.Time     // when the last look was that came because a row was due
	turn     int           // 0 and 1 by turns: whose is the odd place
	backoff  backoff.Backoff

	mu     sync.Mutex
	kicked bool
	due    time.Time // when a row will be due that is not yet; zero: none known
}

type laneKey struct{ group, subscriber string }

func keyOf(l storage.Lane) laneKey { return laneKey{l.Group, l.Subscriber} }

func keyOfRow(rec *storage.Record) laneKey { return laneKey{rec.Group, rec.Subscriber} }

type laneState struct {
	after storage.Position
	read  bool // the last look has read all that was due
}

// NewNeedRetry returns a NeedRetry; its Run does the work.
func NewNeedRetry(cfg NeedRetryConfig) *NeedRetry {
	return &NeedRetry{
		cfg: cfg, wake: make(chan struct{}, 1),
		backoff: backoff.Backoff{Min: 200 * time.Millisecond, Max: 500 * time.Millisecond},
	}
}

// Kick asks for a scan from the start now. It does not block.
func (n *NeedRetry) Kick() {
	n.mu.Lock()
	n.kicked = true
	n.mu.Unlock()
	signal(n.wake)
}

// Expect tells that a row will be due in d, so that it is found in time. It
// does not block.
func (n *NeedRetry) Expect(d time.Duration) {
	if n.expectAt(time.Now().Add(d)) {
		signal(n.wake)
	}
}

// Later is as Expect, of a row that was in hand. One that a look has passed may
// lie before the cursor already: on a slow database a row can be due before the
// write that says so has returned. A wait longer than any write takes cannot.
func (n *NeedRetry) Later(d time.Duration, passed bool) {
	n.Expect(d)
	if passed && d <= lookTimeout {
		n.Kick()
	}
}

// expectAt reports whether that is earlier than what was known.
func (n *NeedRetry) expectAt(at time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.IsZero() || !n.due.IsZero() && !at.Before(n.due) {
		return false
	}
	n.due = at
	return true
}

// Run works until ctx ends.
func (n *NeedRetry) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t, err := n.cfg.Keeper.Wait(ctx)
		if err != nil {
			return
		}
		timer.Reset(n.round(ctx, t))
		select {
		case <-ctx.Done():
			return
		case <-t.Context().Done():
		case <-timer.C:
		case <-n.cfg.Taker.Freed():
		case <-n.wake:
		}
	}
}

// round looks once, where there is room, and returns how long to wait.
func (n *NeedRetry) round(ctx context.Context, t *rows.Tenure) time.Duration {
	if n.tenure != t {
		n.tenure, n.lanes, n.start, n.orphan, n.quiet = t, map[laneKey]*laneState{}, time.Time{}, false, false
	}
	if rest := time.Until(n.rest); rest > 0 {
		return rest
	}
	room := n.cfg.Taker.Room()
	if len(room) == 0 {
		return n.cfg.PollInterval
	}
	begun := time.Now()
	fromStart := n.fromStart(begun)
	err := n.look(ctx, t, room, fromStart)
	switch {
	case ctx.Err() != nil || t.Over():
		return n.cfg.PollInterval
	case err != nil:
		n.cfg.Log.Warn(ctx, "due rows not read, trying again", "", slog.Any("err", err))
		n.rest = time.Now().Add(n.backoff.Next())
		return time.Until(n.rest)
	}
	n.backoff.Reset()
	if fromStart {
		took := time.Since(begun)
		n.earliest = begun.Add(took + 9*min(took, n.took)) // one that took long once puts off no other
		n.took = took
		n.start = later(n.earliest, begun.Add(n.cfg.PollInterval))
	}
	return n.wait(room)
}

// look takes what there is room for.
func (n *NeedRetry) look(ctx context.Context, t *rows.Tenure, room []storage.Lane, fromStart bool) error {
	own, orphans := true, fromStart || n.orphan
	if fromStart && n.quiet {
		var err error
		if own, orphans, err = n.glance(ctx, t, room); err != nil {
			n.quiet = false
			return err
		}
	}
	n.quiet = n.quiet || fromStart
	var lost, err error
	if orphans {
		n.orphan, lost = n.orphans(ctx, t, room)
	}
	if own {
		err = n.own(ctx, t, room, fromStart)
	}
	return errors.Join(lost, err)
}

// fromStart reports whether a scan from the start is to begin.
func (n *NeedRetry) fromStart(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kicked && n.start.After(n.earliest) {
		n.start = n.earliest
	}
	n.kicked = false
	return !now.Before(n.start)
}

// wait returns how long nothing is to be done.
func (n *NeedRetry) wait(room []storage.Lane) time.Duration {
	if n.orphan {
		return 0
	}
	for _, lane := range room {
		if !n.lane(keyOf(lane)).read {
			return 0
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	next := n.start
	if due := later(n.due, n.timed.Add(duePace)); !n.due.IsZero() && due.Before(next) {
		next = due
	}
	return max(0, time.Until(next))
}

// own reads this instance's due rows, of the lanes that have room and that are
// known, or suspected, to have some.
func (n *NeedRetry) own(ctx context.Context, t *rows.Tenure, room []storage.Lane, fromStart bool) error {
	was, timed := n.takeDue(fromStart)
	if fromStart || timed {
		n.unread()
	}
	var lanes []storage.Lane
	for _, lane := range room {
		s := n.lane(keyOf(lane))
		if fromStart {
			*s = laneState{}
		}
		if !s.read && lane.Limit > 0 {
			lanes = append(lanes, storage.Lane{Group: lane.Group, Subscriber: lane.Subscriber, After: s.after, Limit: n.cfg.BatchSize})
		}
	}
	if len(lanes) == 0 {
		return nil
	}
	ctx, cancel := lookContext(ctx, t)
	defer cancel()
	look := n.cfg.Hand.Begin()
	defer look.End()
	recs, next, err := t.Due(ctx, storage.Query{Lanes: lanes, MaxBytes: n.cfg.MaxBytes})
	if err != nil {
		n.expectAt(was)
		return err
	}
	if next >= 0 {
		n.expectAt(time.Now().Add(next))
	}
	n.quiet = n.quiet && len(recs) == 0
	n.take(t, look, lanes, room, recs)
	return nil
}

// take moves the cursors and admits what is not in hand, as far as there is
// room.
func (n *NeedRetry) take(t *rows.Tenure, look *rows.Look, lanes, room []storage.Lane, recs []*storage.Record) {
	left := map[laneKey]int{}
	for _, lane := range room {
		left[keyOf(lane)] = lane.Limit
	}
	read := map[laneKey]int{}
	var admitted []*storage.Record
	for _, rec := range recs {
		key := keyOfRow(rec)
		read[key]++
		if left[key] <= 0 {
			continue // the cursor stays before it
		}
		n.lane(key).after = rec.Position
		if look.Take(rec.ID) {
			left[key]--
			admitted = append(admitted, rec)
		}
	}
	if look.Missed() {
		n.Kick()
	}
	cut := n.cut(recs)
	for _, lane := range lanes {
		key := keyOf(lane)
		n.lanes[key].read = !cut && left[key] > 0 && read[key] < lane.Limit
	}
	n.cfg.Taker.Admit(t, admitted)
}

// cut reports whether MaxBytes may have ended the reading.
func (n *NeedRetry) cut(recs []*storage.Record) bool {
	bytes := 0
	for _, rec := range recs {
		bytes += len(rec.Headers) + len(rec.Body)
	}
	return n.cfg.MaxBytes > 0 && bytes > n.cfg.MaxBytes
}

func (n *NeedRetry) lane(key laneKey) *laneState {
	s := n.lanes[key]
	if s == nil {
		s = &laneState{}
		n.lanes[key] = s
	}
	return s
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
