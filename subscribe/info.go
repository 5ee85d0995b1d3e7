package subscribe

import (
	"context"

	"github.com/capbus/gocap/transport"
)

// Info is what a handler can know of the message in its hands.
type Info struct {
	Message           *transport.Message
	Group, Subscriber string
	Attempt           int // 1 for the first; answers that were failures, plus one
}

type infoKey struct{}

// InfoFromContext returns the Info of the handler that runs with ctx; false
// outside a handler.
func InfoFromContext(ctx context.Context) (Info, bool) {
	info, ok := ctx.Value(infoKey{}).(Info)
	return info, ok
}

func contextWithInfo(ctx context.Context, info Info) context.Context {
	return context.WithValue(ctx, infoKey{}, info)
}
