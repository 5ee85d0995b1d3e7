package processor

import (
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

// NewAlso returns a NeedRetry that finds the rows which another keeper owns,
// those of another version, for the same taker and hand. The signal that room
// has appeared wakes the main one alone: this one finds out within a
// PollInterval.
func NewAlso(cfg NeedRetryConfig, keeper *rows.Keeper) *NeedRetry {
	cfg.Keeper, cfg.Taker = keeper, unsignalled{cfg.Taker}
	return NewNeedRetry(cfg)
}

// NewAlsoOrder is as NewAlso, for rows with a key.
func NewAlsoOrder(cfg OrderConfig, keeper *rows.Keeper) *Order {
	cfg.Keeper, cfg.Taker = keeper, unsignalledKeys{cfg.Taker}
	return NewOrder(cfg)
}

// unsignalled is a taker that shares its signal with nobody.
type unsignalled struct{ Taker }

func (unsignalled) Freed() <-chan struct{} { return nil }

// Room implements Taker: half of it, so that rows of other versions do not hold
// up the bus's own.
func (u unsignalled) Room() []storage.Lane {
	lanes := u.Taker.Room()
	for i := range lanes {
		lanes[i].Limit = (lanes[i].Limit + 1) / 2
	}
	return lanes
}

// unsignalledKeys is unsignalled for rows with a key.
type unsignalledKeys struct{ KeyTaker }

func (unsignalledKeys) KeysFreed() <-chan struct{} { return nil }

// KeyRoom implements KeyTaker: half of it.
func (u unsignalledKeys) KeyRoom() []KeyLane {
	lanes := u.KeyTaker.KeyRoom()
	for i := range lanes {
		lanes[i].Limit = (lanes[i].Limit + 1) / 2
	}
	return lanes
}
