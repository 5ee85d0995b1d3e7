package storage

import "context"

type txKey struct{}

// TxFunc returns the inbox transaction of the handler that is running, which
// begins when it is first asked for.
type TxFunc func() (Tx, error)

// ContextWithTx gives a handler's context its inbox transaction; the engine
// calls it.
func ContextWithTx(ctx context.Context, f TxFunc) context.Context {
	return context.WithValue(ctx, txKey{}, f)
}

// TxFromContext returns the inbox transaction of the running handler, and
// begins it when it is first asked for. Outside a handler it is ErrNoTx.
func TxFromContext(ctx context.Context) (Tx, error) {
	f, ok := ctx.Value(txKey{}).(TxFunc)
	if !ok {
		return nil, ErrNoTx
	}
	return f()
}
