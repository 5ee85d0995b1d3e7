package cap

import "context"

// TxPublisher publishes in transactions of one type, so that the compiler checks
// it. Made with For.
type TxPublisher[TX any] struct{ p Publisher }

// For returns a publisher whose transactions are of type TX, such as
// For[*sql.Tx](bus).
func For[TX any](p Publisher) TxPublisher[TX] { return TxPublisher[TX]{p} }

// Publish is as Bus.Publish.
func (p TxPublisher[TX]) Publish(ctx context.Context, tx TX, topic string, msg any, opts ...PublishOption) error {
	return p.p.Publish(ctx, tx, topic, msg, opts...)
}
