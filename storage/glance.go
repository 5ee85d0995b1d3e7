package storage

import (
	"context"
	"time"
)

// Glancer is optional on a Member: one read, in one statement where it can be,
// that tells an engine which has found nothing for a while whether a look would
// find something. An engine glances once a PollInterval, and looks when there is
// something to see; without a Glancer it looks each time.
type Glancer interface {
	// Glance may see more than a look would find, never less; but nothing where all
	// rows are final, or due later, or owned by other living members. It changes
	// no row. As with TakeOver, a member that has ended, or finds that its own lease has
	// run out, gets ErrLost; it need not be told while there is nothing to see.
	Glance(ctx context.Context, q GlanceQuery) (Glance, error)
}

// GlanceQuery says what to glance at.
type GlanceQuery struct {
	// Lanes are those whose rows without a key are looked for, from the start:
	// After and Limit are ignored.
	Lanes []Lane
	// Locked is as in Query: Glance takes and renews the locks of Lanes as TakeOver
	// does, and sees orphans in those alone whose lock the member holds.
	Locked bool
	// Keys are the lanes whose unfinished rows with a key are looked for.
	Keys []Lane
	// Groups are those whose unmatched rows are looked for.
	Groups []string
}

// Glance is what was seen.
type Glance struct {
	// Next is the wait until the first row of the member in the lanes is due; 0:
	// one is due; negative: the member has none there.
	Next time.Duration
	// Orphans: TakeOver of the lanes would take rows, or has an instance to declare
	// dead.
	Orphans bool
	// Keys: one of the lanes has an unfinished row with a key, whoever owns it and
	// whenever it is due.
	Keys bool
	// Unmatched: one of the groups has an unmatched row.
	Unmatched bool
}

// Merge adds what another glance has seen.
func (g *Glance) Merge(other Glance) {
	if other.Next >= 0 && (g.Next < 0 || other.Next < g.Next) {
		g.Next = other.Next
	}
	g.Orphans = g.Orphans || other.Orphans
	g.Keys = g.Keys || other.Keys
	g.Unmatched = g.Unmatched || other.Unmatched
}
