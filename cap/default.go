package cap

import (
	"context"
	"sync/atomic"
)

var defaultBus atomic.Pointer[Bus]

// Default returns the bus that package functions use outside a handler, or nil.
// New sets it when there is none and Options.Registry is nil; Stop of that bus
// takes it back.
func Default() *Bus { return defaultBus.Load() }

// SetDefault sets the bus that package functions use outside a handler; nil
// takes it back.
func SetDefault(b *Bus) { defaultBus.Store(b) }

type busKey struct{}

func contextWithBus(ctx context.Context, b *Bus) context.Context {
	return context.WithValue(ctx, busKey{}, b)
}

// handlerContext completes the context of a handler. Start may have been called
// with a context that carries a transaction: that is not the handler's.
func (b *Bus) handlerContext(ctx context.Context) context.Context {
	return contextWithBus(ContextWithTx(ctx, nil), b)
}

// busFrom is the bus whose handler runs with ctx, or the default one.
func busFrom(ctx context.Context) (*Bus, error) {
	if b, ok := ctx.Value(busKey{}).(*Bus); ok {
		return b, nil
	}
	if b := Default(); b != nil {
		return b, nil
	}
	return nil, ErrNoBus
}
