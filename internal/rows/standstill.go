package rows

import (
	"context"
	"log/slog"
	"time"
)

// Share lets the keeper watch the pulse of an engine that has several. It is
// called before Join and Run.
func (k *Keeper) Share(p *Pulse) { k.pulse = p }

// Pulse is what the keeper watches.
func (k *Keeper) Pulse() *Pulse { return k.pulse }

// stoodStill gives the rows up when the engine stands still: the lease is not
// renewed, but ended, so that another instance takes them. It reports whether
// that was so.
func (k *Keeper) stoodStill(ctx context.Context) bool {
	now := time.Now()
	found, trips := k.pulse.check(now)
	for _, s := range found {
		k.log.Log.LogAttrs(ctx, slog.LevelError, "engine stands still: a call does not return, though its time is over; "+
			"its rows are given up as soon as no handler runs, restart the process",
			slog.String("box", k.inst.Box.String()), slog.String("what", s.What), slog.Duration("for", now.Sub(s.Since)))
	}
	if trips == k.trips {
		return false
	}
	k.trips, k.back = trips, now.Add(k.inst.Lease)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current != nil {
		k.current.cancel(ErrLeaseLost)
	}
	return true
}

// barred reports whether it is too early to join again: the engine cannot work,
// or others have not yet had the time to take the rows that hang in it.
func (k *Keeper) barred(ctx context.Context) bool {
	k.stoodStill(ctx)
	return time.Now().Before(k.back) || k.pulse.blocked()
}

// Living reports whether the number is a living owner's at the moment, and
// whether it is given up on purpose (Rest).
func (k *Keeper) Living() (living, resting bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current != nil && !k.current.Over(), k.resting
}

// Version is that of the rows.
func (k *Keeper) Version() string { return k.inst.Version }

// Patient makes a keeper that joins when it can, and says seldom that it could
// not: another instance may be in its place for long. It is called before Run.
func (k *Keeper) Patient() {
	k.patient = true
	k.log.Every = time.Hour
}
