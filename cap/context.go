package cap

import (
	"context"
	"errors"
	"fmt"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
)

// Info is what a handler can know of its message: the message, group and
// subscriber, and which attempt it is.
type Info = subscribe.Info

// InfoFromContext returns the Info of the handler that runs with ctx; false
// outside a handler.
func InfoFromContext(ctx context.Context) (Info, bool) { return subscribe.InfoFromContext(ctx) }

type txKey struct{}

// ContextWithTx returns a context whose transaction Publish uses when its own
// argument is nil.
func ContextWithTx(ctx context.Context, tx Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// TxFromContext returns the transaction of ContextWithTx, else that of the inbox
// row whose handler runs with ctx; that one begins when it is first asked for,
// and the handler's success commits it. Its type is the storage's: *gorm.DB in
// gormstore. Error: ErrNoTx (in a group
// without an inbox, too), or why it could not begin.
func TxFromContext(ctx context.Context) (Tx, error) {
	if tx := ctx.Value(txKey{}); !isNil(tx) {
		return tx, nil
	}
	tx, err := storage.TxFromContext(ctx)
	if errors.Is(err, ErrNoTx) {
		return nil, fmt.Errorf("cap: %w in the context: it is neither that of a handler in a group with an inbox, nor of ContextWithTx", err)
	}
	if err != nil {
		return nil, fmt.Errorf("cap: %w", err)
	}
	return tx.Value(), nil
}
