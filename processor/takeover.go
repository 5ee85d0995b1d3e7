package processor

import (
	"context"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

// orphans takes over rows that have no living owner, into half of the room: the
// other half is for this instance's own, and neither holds up the other. It
// takes what it has used off the room, and reports whether there may be more.
func (n *NeedRetry) orphans(ctx context.Context, t *rows.Tenure, room []storage.Lane) (more bool, err error) {
	var lanes []storage.Lane
	for _, lane := range room {
		if limit := min((lane.Limit+n.turn)/2, n.cfg.BatchSize); limit > 0 {
			lanes = append(lanes, storage.Lane{Group: lane.Group, Subscriber: lane.Subscriber, Limit: limit})
		}
	}
	n.turn = 1 - n.turn
	if len(lanes) == 0 {
		return true, nil
	}
	ctx, cancel := lookContext(ctx, t)
	defer cancel()
	look := n.cfg.Hand.Begin()
	defer look.End()
	recs, err := t.TakeOver(ctx, storage.Query{Lanes: lanes, MaxBytes: n.cfg.MaxBytes, Locked: n.cfg.Locked})
	if err != nil {
		return n.orphan, err
	}
	if n.cfg.TakenOver != nil && len(recs) > 0 {
		n.cfg.TakenOver(ctx, recs)
	}
	n.quiet = n.quiet && len(recs) == 0
	var admitted []*storage.Record
	read, used := map[laneKey]int{}, map[laneKey]int{}
	for _, rec := range recs {
		read[keyOfRow(rec)]++
		if look.Take(rec.ID) {
			used[keyOfRow(rec)]++
			admitted = append(admitted, rec)
		} else {
			n.Kick() // it is this instance's own now; its hand has it still
		}
	}
	more = n.cut(recs)
	for _, lane := range lanes {
		more = more || read[keyOf(lane)] >= lane.Limit
	}
	for i, lane := range room {
		room[i].Limit -= used[keyOf(lane)]
	}
	n.cfg.Taker.Admit(t, admitted)
	return more, nil
}
