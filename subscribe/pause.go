package subscribe

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Pause lets a group receive nothing more, and start no handler. What it has in
// hand and has not started goes back to the table, where it stays; handlers that
// run finish. It is this process's own business: others of the group go on.
func (c *Consumer) Pause(name string) error {
	g, err := c.named(name)
	if err != nil {
		return err
	}
	g.setPaused(true)
	g.giveBackQueued()
	return nil
}

// Resume ends what Pause began. The caller lets the table be looked at.
func (c *Consumer) Resume(name string) error {
	g, err := c.named(name)
	if err != nil {
		return err
	}
	g.setPaused(false)
	return nil
}

// named finds a group by its whole name, or by that without the prefix.
func (c *Consumer) named(name string) (*group, error) {
	if g := c.group(name); g != nil {
		return g, nil
	}
	if g := c.group(join(c.cfg.GroupPrefix, name)); g != nil {
		return g, nil
	}
	all := "this bus serves none"
	if names := c.Groups(); len(names) > 0 {
		all = "there are " + strings.Join(names, ", ")
	}
	return nil, fmt.Errorf("no group %q: %s", name, all)
}

// active are the groups that are not paused.
func (c *Consumer) active() []string {
	var names []string
	for _, g := range c.groups {
		if !g.isPaused() {
			names = append(names, g.name)
		}
	}
	return names
}

// pausing is whether a group is paused. The group's mutex guards it.
type pausing struct {
	since   time.Time     // zero: it is not
	changed chan struct{} // closed at every change
}

func (g *group) setPaused(paused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if paused == !g.pause.since.IsZero() {
		return
	}
	g.pause.since = time.Time{}
	if paused {
		g.pause.since = time.Now()
	}
	close(g.pause.changed)
	g.pause.changed = make(chan struct{})
	g.free.Broadcast()
}

func (g *group) isPaused() bool {
	paused, _ := g.pauseState()
	return paused
}

func (g *group) pauseState() (paused bool, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.pause.since.IsZero(), g.pause.changed
}

// untilPaused returns a context that ends when the group is paused, once it is
// not; false: ctx has ended.
func (g *group) untilPaused(ctx context.Context) (until context.Context, cancel context.CancelFunc, ok bool) {
	for {
		paused, changed := g.pauseState()
		if !paused {
			until, cancel = context.WithCancel(ctx)
			go func() {
				select {
				case <-changed:
					cancel()
				case <-until.Done():
				}
			}()
			return until, cancel, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, false
		}
	}
}
