package rows

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/backoff"
	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/storage"
)

// ErrLeaseLost is the cause by which the work of a tenure ends when this
// process could not renew its lease in time.
var ErrLeaseLost = errors.New("lease lost: the heartbeat could not be renewed in time")

// errResting is the cause by which a tenure ends at Rest.
var errResting = errors.New("the number was given up until it is of use")

// Tenure is the time in which this process owns rows under one number.
type Tenure struct {
	storage.Member

	pulse  *Pulse
	sights sights
	ctx    context.Context //nolint:containedctx // a tenure is a span of time; this is its end
	cancel context.CancelCauseFunc
	expiry *time.Timer
}

// Context ends, with cause ErrLeaseLost, when the tenure does.
func (t *Tenure) Context() context.Context { return t.ctx }

// Over reports whether the tenure has ended.
func (t *Tenure) Over() bool { return t.ctx.Err() != nil }

// Keeper keeps this process a living owner: it joins, renews the lease every
// third of it, and joins under a new number when the lease was lost.
type Keeper struct {
	store storage.Storage
	inst  storage.Instance
	log   *quiet.Logger
	pulse *Pulse
	// patient: see Patient; asks: see Ask.
	patient bool
	asks    asks

	// Known to Run alone.
	trips int       // of the pulse, as seen
	back  time.Time // not joined before

	mu      sync.Mutex
	current *Tenure
	resting bool
	changed chan struct{} // closed at every change of the above
}

// NewKeeper returns a keeper that has not joined yet.
func NewKeeper(store storage.Storage, inst storage.Instance, log *slog.Logger) *Keeper {
	return &Keeper{
		store: store, inst: inst, log: &quiet.Logger{Log: log}, pulse: NewPulse(inst.Lease), changed: make(chan struct{}),
	}
}

// Lease is how long the instance lives without a beat.
func (k *Keeper) Lease() time.Duration { return k.inst.Lease }

// Rest ends the tenure as a clean stop does, until Resume: who cannot work on
// its rows leaves them to others. It does not block; Run does the work.
func (k *Keeper) Rest() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.resting = true
	if k.current != nil {
		k.current.cancel(errResting)
	}
	k.change()
}

// Resume ends what Rest began: Run joins again, under a new number.
func (k *Keeper) Resume() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.resting = false
	k.change()
}

// Join enters for the first time, so that Start can report an error.
func (k *Keeper) Join(ctx context.Context) error {
	begun := time.Now()
	m, err := k.store.Join(ctx, k.inst)
	if err != nil {
		return err
	}
	tctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	t := &Tenure{Member: m, pulse: k.pulse, sights: sights{asks: &k.asks}, ctx: tctx, cancel: cancel}
	// The lease counts from before the write was sent, on the monotonic clock.
	t.expiry = time.AfterFunc(time.Until(begun.Add(k.inst.Lease)), func() { cancel(ErrLeaseLost) })
	k.set(t)
	return nil
}

// Current returns the tenure, or nil when there is none at the moment.
func (k *Keeper) Current() *Tenure {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil || k.current.Over() {
		return nil
	}
	return k.current
}

// Wait returns the tenure, once there is one. The error is that of ctx.
func (k *Keeper) Wait(ctx context.Context) (*Tenure, error) {
	for {
		k.mu.Lock()
		t, changed := k.current, k.changed
		k.mu.Unlock()
		if t != nil && !t.Over() {
			return t, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Run renews the lease until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	retry := backoff.Backoff{Min: k.inst.Lease / 30, Max: k.inst.Lease / 6}
	next := k.inst.Lease / 3
	for {
		t := k.Current()
		if t == nil {
			if !k.rejoin(ctx) {
				return
			}
			retry.Reset()
			next = k.inst.Lease / 3
			continue
		}
		if !waitFor(ctx, t.ctx, next) {
			if ctx.Err() != nil {
				return
			}
			continue
		}
		if k.stoodStill(ctx) {
			continue
		}
		if k.beat(ctx, t) {
			retry.Reset()
			next = k.inst.Lease / 3
		} else {
			next = retry.Next()
		}
	}
}

// waitFor reports whether it waited in full.
func waitFor(ctx, tenure context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-tenure.Done():
	case <-ctx.Done():
	}
	return false
}

func (k *Keeper) beat(ctx context.Context, t *Tenure) bool {
	begun := time.Now()
	// Half of the lease, after a third of it: a database that is slow gets most
	// of what is left, and one that hangs leaves time for another try.
	bctx, cancel := context.WithTimeout(ctx, k.inst.Lease/2)
	defer cancel()
	err := t.Beat(bctx)
	switch {
	case err == nil:
		if t.expiry.Stop() { // not fired: the tenure goes on
			t.expiry.Reset(time.Until(begun.Add(k.inst.Lease)))
		}
		return true
	case errors.Is(err, storage.ErrLost):
		t.cancel(ErrLeaseLost)
	case ctx.Err() == nil:
		k.warn(ctx, "heartbeat not written, trying again", err)
	}
	return false
}

// rejoin ends the old number, if it can, so that nothing is counted as a death,
// and joins under a new one. It reports false when ctx has ended.
func (k *Keeper) rejoin(ctx context.Context) bool {
	wait := backoff.Backoff{Min: 50 * time.Millisecond, Max: min(500*time.Millisecond, max(k.inst.Lease/5, 50*time.Millisecond))}
	if k.patient {
		wait.Max = max(k.inst.Lease/3, wait.Min)
	}
	for ctx.Err() == nil {
		err := k.leaveOld(ctx)
		resting, changed := k.rest()
		switch {
		case k.barred(ctx):
			backoff.Sleep(ctx, k.inst.Lease/6)
			continue
		case !resting:
			jctx, cancel := context.WithTimeout(ctx, k.inst.Lease)
			err = k.Join(jctx)
			cancel()
			if err == nil {
				return true
			}
		case err == nil:
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if ctx.Err() == nil {
			k.warn(ctx, "not joined, trying again", err)
		}
		wait.Sleep(ctx)
	}
	return false
}

// leaveOld ends the number that is not used any more; after an error it may be
// living still.
func (k *Keeper) leaveOld(ctx context.Context) error {
	k.mu.Lock()
	old := k.current
	k.mu.Unlock()
	if old == nil {
		return nil
	}
	if context.Cause(old.ctx) != errResting { //nolint:errorlint // the cause itself
		k.warn(ctx, "joining again", context.Cause(old.ctx))
	}
	lctx, cancel := context.WithTimeout(ctx, k.inst.Lease/3)
	defer cancel()
	err := old.Leave(lctx)
	if err == nil {
		k.set(nil)
	}
	return err
}

func (k *Keeper) rest() (resting bool, changed <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.resting, k.changed
}

func (k *Keeper) warn(ctx context.Context, msg string, err error) {
	k.log.Warn(ctx, msg, "", slog.String("box", k.inst.Box.String()), slog.Any("err", err))
}

// Leave ends the tenure: what it still owns is anyone's. Run must have ended.
func (k *Keeper) Leave(ctx context.Context) error {
	k.mu.Lock()
	t := k.current
	k.mu.Unlock()
	if t == nil {
		return nil
	}
	t.expiry.Stop()
	t.cancel(ErrLeaseLost)
	err := t.Leave(ctx)
	k.set(nil)
	return err
}

func (k *Keeper) set(t *Tenure) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = t
	if k.resting && t != nil {
		t.cancel(errResting) // asked for while it joined
	}
	k.change()
}

// change tells those who wait; k.mu is held.
func (k *Keeper) change() {
	close(k.changed)
	k.changed = make(chan struct{})
}
