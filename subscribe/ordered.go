package subscribe

import (
	"crypto/sha256"
	"encoding/hex"
	"sync/atomic"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

// Keys is who looks for rows with a key, and knows which are in hand.
type Keys interface {
	rows.Keyed
	// Ask asks for a look at keys of a subscription. It does not block.
	Ask(group, subscriber string, keys ...string)
}

// KeyRoom is how many rows with a key a subscription can take now.
type KeyRoom struct {
	Group, Subscriber string
	Limit             int
	Ordered           bool // else there are some only if it was once
}

// OnKeys lets k know of rows with a key. It is called before Run.
func (c *Consumer) OnKeys(k Keys) {
	c.keys = k
	c.desk.Order(k)
}

// OnAlsoKeys lets k know of them, too. It is called before Run.
func (c *Consumer) OnAlsoKeys(k rows.Keyed) { c.desk.Order(k) }

// KeyRoom says what each subscription can take; nothing is taken from it while
// there is none. Rows with a key have a window of their own.
func (c *Consumer) KeyRoom() []KeyRoom {
	if c.desk.Draining() {
		return nil
	}
	var room []KeyRoom
	for _, g := range c.groups {
		if g.isPaused() {
			continue
		}
		full := g.bytes.Load() > rows.MaxHandBytes
		for _, rt := range g.routes {
			r := KeyRoom{Group: g.name, Subscriber: rt.name, Ordered: rt.ordered}
			if !full {
				r.Limit = max(0, g.window-int(rt.keyed.Load()))
			}
			room = append(room, r)
		}
	}
	return room
}

// KeysFreed is signalled when room for rows with a key has appeared.
func (c *Consumer) KeysFreed() <-chan struct{} { return c.keyFree }

// ask asks for looks at the keys of rows that were just stored: they start when
// they are the first of theirs.
func (c *Consumer) ask(recs []*storage.Record) {
	if c.keys == nil {
		return
	}
	keys := map[laneKey][]string{}
	for _, rec := range recs {
		if lane := (laneKey{rec.Group, rec.Subscriber}); inOrder(rec) {
			keys[lane] = append(keys[lane], rec.Key)
		}
	}
	for lane, list := range keys {
		c.keys.Ask(lane.group, lane.subscriber, list...)
	}
}

// inOrder reports whether a record waits for its turn among those with its key.
func inOrder(rec *storage.Record) bool { return rec.Key != "" && rec.Fault == "" && !rec.Final }

// inHand counts the rows in hand that came from the table, as a row is counted.
func (rt *route) inHand(rec *storage.Record) *atomic.Int64 {
	if rec.Key != "" {
		return &rt.keyed
	}
	return &rt.looked
}

// receiverCount is one where the order of deliveries counts.
func (g *group) receiverCount() int {
	if g.source.Ordered {
		return 1
	}
	return g.c.cfg.Receivers
}

// orderingKey makes a key of what came as one: any text, of any length.
func orderingKey(header string) string {
	if len(header) <= storage.MaxKeyBytes {
		return header
	}
	sum := sha256.Sum256([]byte(header))
	return "sha256:" + hex.EncodeToString(sum[:])
}
