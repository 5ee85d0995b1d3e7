package processor

import (
	"context"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

// glance asks what a scan from the start would find. If it is nothing of this
// instance's own, all lanes are read by that, and the next due time is known.
func (n *NeedRetry) glance(ctx context.Context, t *rows.Tenure, room []storage.Lane) (own, orphans bool, err error) {
	ctx, cancel := lookContext(ctx, t)
	defer cancel()
	was, _ := n.takeDue(true)
	// What it sees holds until the next one, which may be late on a busy machine.
	g, ok, err := t.Glance(ctx, room, n.cfg.Locked, 2*n.cfg.PollInterval)
	if err != nil || !ok || g.Next == 0 {
		n.expectAt(was)
		return true, !ok || g.Orphans, err
	}
	if g.Next > 0 {
		n.expectAt(time.Now().Add(g.Next))
	}
	n.unread()
	for _, lane := range room {
		*n.lane(keyOf(lane)) = laneState{read: true}
	}
	n.orphan = false
	return false, g.Orphans, nil
}

// unread forgets what is read; lanes without room are read when they have some.
func (n *NeedRetry) unread() {
	for _, s := range n.lanes {
		s.read = false
	}
}
