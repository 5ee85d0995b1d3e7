package cap

import (
	"slices"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
)

// alsoVersion is this bus as an owner of rows of another version
// (Options.AlsoVersions), in one box.
type alsoVersion struct {
	box    storage.Box
	keeper *rows.Keeper
	retry  *processor.NeedRetry
	order  *processor.Order
}

// makeAlso makes the keepers. They join when they can: instances of the other
// version that send elsewhere may live for long yet.
func (b *Bus) makeAlso(e *engines) {
	for _, version := range b.opts.AlsoVersions {
		for box, main := range map[storage.Box]*rows.Keeper{storage.Outbox: e.sending, storage.Inbox: e.handling} {
			k := rows.NewKeeper(b.opts.Storage, b.instanceOf(box, version), b.opts.Logger)
			k.Share(main.Pulse())
			k.Patient()
			e.also = append(e.also, &alsoVersion{box: box, keeper: k})
		}
	}
}

func (b *Bus) instance(box storage.Box) storage.Instance {
	return b.instanceOf(box, b.opts.Version)
}

func (b *Bus) instanceOf(box storage.Box, version string) storage.Instance {
	t := b.opts.Transport.Traits()
	return storage.Instance{Box: box, Version: version, Lease: b.opts.FallbackWindow, Transport: t.Name, Destination: t.Destination}
}

// feedAlso lets their rows be found.
func (b *Bus) feedAlso(e *engines) {
	o := b.opts
	for _, a := range e.also {
		cfg := processor.NeedRetryConfig{
			Hand: e.consumer.Hand(), Taker: e.consumer, Log: b.log,
			PollInterval: o.PollInterval, BatchSize: o.BatchSize, MaxBytes: rows.MaxLookBytes, Locked: o.UseStorageLock,
		}
		keys := processor.OrderConfig{
			Hand: cfg.Hand, Taker: keyTaker{e.consumer}, Log: b.log,
			PollInterval: o.PollInterval, BatchSize: o.BatchSize, MaxBytes: rows.MaxLookBytes,
		}
		onKeys := e.consumer.OnAlsoKeys
		if a.box == storage.Outbox {
			cfg.Hand, cfg.Taker = e.dispatcher.Hand(), e.dispatcher
			keys.Hand, keys.Taker, onKeys = cfg.Hand, e.dispatcher, e.dispatcher.OnAlsoKeys
		}
		a.retry, a.order = processor.NewAlso(cfg, a.keeper), processor.NewAlsoOrder(keys, a.keeper)
		onKeys(a.order)
	}
}

// keepers are those of other versions in a box.
func (e *engines) keepers(box storage.Box) []*rows.Keeper {
	var ks []*rows.Keeper
	for _, a := range e.also {
		if a.box == box {
			ks = append(ks, a.keeper)
		}
	}
	return ks
}

// numbers are all under which the bus owns rows; those that are not made yet are
// nil.
func (e *engines) numbers() []*rows.Keeper {
	return slices.Concat([]*rows.Keeper{e.sending, e.handling}, e.keepers(storage.Outbox), e.keepers(storage.Inbox))
}
