package subscribe

import (
	"context"

	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/storage"
)

// Trace holds hooks on the way of a message in; what processor.Trace says of
// hooks holds for these. A group without an inbox (BrokerRetry) has Handle alone:
// the others tell of rows.
type Trace struct {
	// Stored is called when deliveries of a group have been stored in the inbox:
	// how many arrived, and how many rows they made. One delivery makes a row for
	// each matching subscription, and none that is known already.
	Stored func(ctx context.Context, group string, deliveries, rows int)
	// Handle is called before each run of a handler. The context that it returns
	// is the handler's; done, unless nil, gets what the handler returned.
	Handle func(ctx context.Context, info Info) (handling context.Context, done func(err error))
	// Settled is called when the outcome of a row has been stored; not stored:
	// another instance has the row meanwhile.
	Settled func(rec *storage.Record, o storage.Outcome, stored bool)
	// TakenOver is called when rows without a living owner have become this
	// instance's.
	TakenOver func(ctx context.Context, recs []*storage.Record)
}

func (t *Trace) stored(ctx context.Context, log *quiet.Logger, group string, deliveries, rows int) {
	if t != nil && t.Stored != nil {
		log.Guard(ctx, "Stored", func() { t.Stored(ctx, group, deliveries, rows) })
	}
}

func (t *Trace) handle(ctx context.Context, log *quiet.Logger, info Info) (context.Context, func(err error)) {
	none := func(error) {}
	if t == nil || t.Handle == nil {
		return ctx, none
	}
	handling, done := ctx, none
	log.Guard(ctx, "Handle", func() {
		if c, f := t.Handle(ctx, info); f != nil {
			handling, done = c, f
		} else {
			handling = c
		}
	})
	if handling == nil {
		handling = ctx
	}
	return handling, func(err error) { log.Guard(ctx, "Handle", func() { done(err) }) }
}

// TraceTakenOver returns the hook TakenOver as processor.NeedRetryConfig has it.
func TraceTakenOver(t *Trace, log *quiet.Logger) func(ctx context.Context, recs []*storage.Record) {
	if t == nil || t.TakenOver == nil {
		return nil
	}
	return func(ctx context.Context, recs []*storage.Record) {
		log.Guard(ctx, "TakenOver", func() { t.TakenOver(ctx, recs) })
	}
}

func (t *Trace) settled(log *quiet.Logger) func(rec *storage.Record, o storage.Outcome, stored bool) {
	if t == nil || t.Settled == nil {
		return nil
	}
	return func(rec *storage.Record, o storage.Outcome, stored bool) {
		ctx := context.Background() //nolint:forbidigo // outcomes of many requests are stored at once
		log.Guard(ctx, "Settled", func() { t.Settled(rec, o, stored) })
	}
}
