package processor

import (
	"context"
	"log/slog"
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
}

// NeedRetry finds the rows of one table that need another look: this
// instance's own that are due (failed, delayed, beyond what was in memory), and
// those that have no living owner. A full batch is followed by the next at
// once, behind its last row; the scan from the very start comes once a
// PollInterval, and takes at most a tenth of the time.
type NeedRetry struct {
	cfg    NeedRetryConfig
	kick   chan struct{}
	expect chan time.Duration

	// Known to Run alone.
	tenure  *rows.Tenure
	lanes   map[laneKey]*laneState
	start   time.Time // when the next scan from the start is due
	due     time.Time // when a row will be due that is not yet; zero: none known
	rest    time.Time // after an error: no look before
	orphan  bool      // the last takeover came back full
	backoff backoff.Backoff
}

type laneKey struct{ group, subscriber string }

type laneState struct {
	after storage.Position
	more  bool // the last look came back full
}

// NewNeedRetry returns a NeedRetry; its Run does the work.
func NewNeedRetry(cfg NeedRetryConfig) *NeedRetry {
	return &NeedRetry{
		cfg: cfg, kick: make(chan struct{}, 1), expect: make(chan time.Duration, 64),
		backoff: backoff.Backoff{Min: 200 * time.Millisecond, Max: 2 * time.Second},
	}
}

// Kick asks for a scan from the start now. It does not block.
func (n *NeedRetry) Kick() {
	select {
	case n.kick <- struct{}{}:
	default:
	}
}

// Expect tells that a row will be due in d, so that it is found in time. It
// does not block; what is lost is found by the scan of the PollInterval.
func (n *NeedRetry) Expect(d time.Duration) {
	select {
	case n.expect <- d:
	default:
	}
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
		case d := <-n.expect:
			n.dueIn(d)
		case <-n.kick:
			n.start = time.Time{}
		}
	}
}

// round looks once, where there is room, and returns how long to wait.
func (n *NeedRetry) round(ctx context.Context, t *rows.Tenure) time.Duration {
	if n.tenure != t {
		n.tenure, n.lanes, n.start, n.due, n.orphan = t, map[laneKey]*laneState{}, time.Time{}, time.Time{}, false
	}
	if rest := time.Until(n.rest); rest > 0 {
		return rest
	}
	room := n.cfg.Taker.Room()
	if len(room) == 0 {
		return n.cfg.PollInterval
	}
	begun := time.Now()
	fromStart := !begun.Before(n.start)
	err := n.own(ctx, t, room, fromStart)
	if err == nil && (fromStart || n.orphan) {
		n.orphan, err = n.orphans(ctx, t)
	}
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
		n.start = begun.Add(max(n.cfg.PollInterval, 10*time.Since(begun)))
	}
	if n.orphan {
		return 0
	}
	return n.wait(room)
}

// wait returns how long nothing is to be done.
func (n *NeedRetry) wait(room []storage.Lane) time.Duration {
	for _, lane := range room {
		if s := n.lanes[laneKey{lane.Group, lane.Subscriber}]; s != nil && s.more {
			return 0
		}
	}
	next := n.start
	if !n.due.IsZero() && n.due.Before(next) {
		next = n.due
	}
	return max(0, time.Until(next))
}

func (n *NeedRetry) dueIn(d time.Duration) {
	if at := time.Now().Add(d); n.due.IsZero() || at.Before(n.due) {
		n.due = at
	}
}

// own reads this instance's due rows, of the lanes that have room and that are
// known, or suspected, to have some.
func (n *NeedRetry) own(ctx context.Context, t *rows.Tenure, room []storage.Lane, fromStart bool) error {
	timed := !n.due.IsZero() && !time.Now().Before(n.due)
	var lanes []storage.Lane
	for _, lane := range room {
		s := n.lane(lane)
		if fromStart {
			*s = laneState{}
		}
		if fromStart || timed || s.more {
			lanes = append(lanes, storage.Lane{Group: lane.Group, Subscriber: lane.Subscriber, After: s.after, Limit: n.cfg.BatchSize})
		}
	}
	if len(lanes) == 0 {
		return nil
	}
	look := n.cfg.Hand.Begin()
	defer look.End()
	recs, next, err := t.Due(ctx, storage.Query{Lanes: lanes, MaxBytes: n.cfg.MaxBytes})
	if err != nil {
		return err
	}
	if fromStart || timed {
		n.due = time.Time{}
	}
	if next >= 0 {
		n.dueIn(next)
	}
	n.take(t, look, lanes, room, recs)
	return nil
}

// take moves the cursors and admits what is not in hand, as far as there is
// room.
func (n *NeedRetry) take(t *rows.Tenure, look *rows.Look, lanes, room []storage.Lane, recs []*storage.Record) {
	left := map[laneKey]int{}
	for _, lane := range room {
		left[laneKey{lane.Group, lane.Subscriber}] = lane.Limit
	}
	read, bytes := map[laneKey]int{}, 0
	var admitted []*storage.Record
	for _, rec := range recs {
		key := laneKey{rec.Group, rec.Subscriber}
		read[key]++
		bytes += len(rec.Headers) + len(rec.Body)
		if left[key] <= 0 {
			continue // the cursor stays before it
		}
		n.lane(storage.Lane{Group: rec.Group, Subscriber: rec.Subscriber}).after = rec.Position
		if look.Take(rec.ID) {
			left[key]--
			admitted = append(admitted, rec)
		}
	}
	cut := n.cfg.MaxBytes > 0 && bytes > n.cfg.MaxBytes
	for _, lane := range lanes {
		key := laneKey{lane.Group, lane.Subscriber}
		n.lanes[key].more = cut || left[key] <= 0 || read[key] >= lane.Limit
	}
	n.cfg.Taker.Admit(t, admitted)
}

// orphans takes over rows that have no living owner. It reports whether there
// may be more of them.
func (n *NeedRetry) orphans(ctx context.Context, t *rows.Tenure) (more bool, err error) {
	room := n.cfg.Taker.Room()
	if len(room) == 0 {
		return false, nil
	}
	for i := range room {
		room[i].Limit = min(room[i].Limit, n.cfg.BatchSize)
	}
	look := n.cfg.Hand.Begin()
	defer look.End()
	recs, err := t.TakeOver(ctx, storage.Query{Lanes: room, MaxBytes: n.cfg.MaxBytes})
	if err != nil {
		return false, err
	}
	var admitted []*storage.Record
	read := map[laneKey]int{}
	for _, rec := range recs {
		read[laneKey{rec.Group, rec.Subscriber}]++
		if look.Take(rec.ID) {
			admitted = append(admitted, rec)
		}
	}
	for _, lane := range room {
		more = more || read[laneKey{lane.Group, lane.Subscriber}] >= lane.Limit
	}
	n.cfg.Taker.Admit(t, admitted)
	return more, nil
}

func (n *NeedRetry) lane(l storage.Lane) *laneState {
	key := laneKey{l.Group, l.Subscriber}
	s := n.lanes[key]
	if s == nil {
		s = &laneState{}
		n.lanes[key] = s
	}
	return s
}
