package processor

import (
	"context"

	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// Trace holds hooks on the way of a message out: for traces, metrics and
// audits. A nil hook is skipped. Hooks are called by the goroutine that does the
// work, several at once, and hold it up: they must be fast. They must not change
// what they get, unless said; a panic in one is logged and changes nothing.
type Trace struct {
	// Publish is called by Publish before a message is stored, in the order of the
	// messages; it may add to m.Headers. They are checked afterwards as those of
	// the application are.
	Publish func(ctx context.Context, m *transport.Message)
	// Send is called before messages go to the transport. The context that it
	// returns is that of the sending; done, unless nil, gets an answer a message:
	// nil is stored by the broker.
	Send func(ctx context.Context, msgs []*transport.Message) (sending context.Context, done func(errs []error))
	// Settled is called when the outcome of a row has been stored; not stored:
	// another instance has the row meanwhile. Both are to be read only.
	Settled func(rec *storage.Record, o storage.Outcome, stored bool)
	// TakenOver is called when rows without a living owner have become this
	// instance's.
	TakenOver func(ctx context.Context, recs []*storage.Record)
	// Breaker is called when sending is paused because the broker is away, with
	// the reason, and when it goes on, with nil.
	Breaker func(ctx context.Context, cause error)
	// Collected is called after expired rows have been deleted.
	Collected func(ctx context.Context, box storage.Box, rows int)
}

// TracePublish calls the hook Publish, if there is one.
func TracePublish(ctx context.Context, t *Trace, log *quiet.Logger, m *transport.Message) {
	if t != nil && t.Publish != nil {
		log.Guard(ctx, "Publish", func() { t.Publish(ctx, m) })
	}
}

func (t *Trace) send(ctx context.Context, log *quiet.Logger, msgs []*transport.Message) (context.Context, func(errs []error)) {
	none := func([]error) {}
	if t == nil || t.Send == nil {
		return ctx, none
	}
	sending, done := ctx, none
	log.Guard(ctx, "Send", func() {
		if c, f := t.Send(ctx, msgs); f != nil {
			sending, done = c, f
		} else {
			sending = c
		}
	})
	if sending == nil {
		sending = ctx
	}
	return sending, func(errs []error) { log.Guard(ctx, "Send", func() { done(errs) }) }
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

func (t *Trace) takenOver(log *quiet.Logger) func(ctx context.Context, recs []*storage.Record) {
	if t == nil || t.TakenOver == nil {
		return nil
	}
	return func(ctx context.Context, recs []*storage.Record) {
		log.Guard(ctx, "TakenOver", func() { t.TakenOver(ctx, recs) })
	}
}

func (t *Trace) breaker(ctx context.Context, log *quiet.Logger, cause error) {
	if t != nil && t.Breaker != nil {
		log.Guard(ctx, "Breaker", func() { t.Breaker(ctx, cause) })
	}
}

func (t *Trace) collected(ctx context.Context, log *quiet.Logger, box storage.Box, rows int) {
	if t != nil && t.Collected != nil && rows > 0 {
		log.Guard(ctx, "Collected", func() { t.Collected(ctx, box, rows) })
	}
}
