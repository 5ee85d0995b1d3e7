package cap

import (
	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/subscribe"
)

// keyTaker is a Consumer as processor.Order sees it: the engines do not know
// each other.
type keyTaker struct{ *subscribe.Consumer }

// KeyRoom implements processor.KeyTaker.
func (k keyTaker) KeyRoom() []processor.KeyLane {
	room := k.Consumer.KeyRoom()
	lanes := make([]processor.KeyLane, len(room))
	for i, l := range room {
		lanes[i] = processor.KeyLane{Group: l.Group, Subscriber: l.Subscriber, Limit: l.Limit, Rare: !l.Ordered}
	}
	return lanes
}
