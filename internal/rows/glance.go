package rows

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/capbus/gocap/storage"
)

// sights is what one loop of an engine has glanced at for the others too, so that
// an engine with nothing to do asks the storage once.
type sights struct {
	asks *asks

	mu    sync.Mutex
	seen  storage.Glance
	until time.Time // what was seen holds until then
}

// asks is what a glance looks for beside the lanes that it is given.
type asks struct {
	storage.GlanceQuery

	keysSeen func() // nil: nobody wants to know
}

// Ask says what Glance looks for beside the lanes that it is given: the lanes
// whose rows may have keys, and the groups that may have unmatched rows. It is
// called before anything runs.
func (k *Keeper) Ask(keys []storage.Lane, groups []string) {
	k.asks.GlanceQuery = storage.GlanceQuery{Keys: keys, Groups: groups}
}

// OnKeys lets f know that a glance sees rows with a key where the last one saw
// none. f does not block. It is called before anything runs.
func (k *Keeper) OnKeys(f func()) { k.asks.keysSeen = f }

// Glance implements storage.Glancer, as far as the storage does (else ok is
// false), and remembers for so long what was seen.
func (t *Tenure) Glance(ctx context.Context, lanes []storage.Lane, locked bool, holds time.Duration) (g storage.Glance, ok bool, err error) {
	m, ok := t.Member.(storage.Glancer)
	if !ok {
		return g, false, nil
	}
	defer t.pulse.Enter(ctx, "glancing at rows")()
	begun := time.Now()
	s := &t.sights
	g, err = m.Glance(ctx, storage.GlanceQuery{Lanes: lanes, Locked: locked, Keys: s.asks.Keys, Groups: s.asks.Groups})
	if err != nil {
		return g, true, err
	}
	s.mu.Lock()
	fresh := g.Keys && !s.seen.Keys
	s.seen, s.until = g, begun.Add(holds)
	s.mu.Unlock()
	if fresh && s.asks.keysSeen != nil {
		s.asks.keysSeen()
	}
	return g, true, nil
}

// NoKeys reports that none of the lanes has rows with a key, and until when to
// believe it: a glance has just seen it.
func (t *Tenure) NoKeys(lanes []storage.Lane) (until time.Time, ok bool) {
	s := &t.sights
	for _, l := range lanes {
		if !slices.ContainsFunc(s.asks.Keys, func(k storage.Lane) bool { return k.Group == l.Group && k.Subscriber == l.Subscriber }) {
			return time.Time{}, false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until, !s.seen.Keys && time.Now().Before(s.until)
}

// NoUnmatched reports that none of the groups has unmatched rows: a glance has
// just seen it.
func (t *Tenure) NoUnmatched(groups []string) bool {
	s := &t.sights
	for _, g := range groups {
		if !slices.Contains(s.asks.Groups, g) {
			return false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.seen.Unmatched && time.Now().Before(s.until)
}
