// Package cap publishes messages in the caller's own database transaction and
// handles those of others.
//
// Publishing writes a row into the outbox table, in the transaction that also
// changes the business tables; the message leaves after the commit, and only
// then:
//
//	err := db.Transaction(func(tx *gorm.DB) error {
//		if err := tx.Delete(&Product{}, id).Error; err != nil {
//			return err
//		}
//		return cap.Publish(ctx, tx, "product.deleted", ProductDeleted{ID: id})
//	})
//
// Subscribing registers a handler at program start. It runs until it returns
// nil, or until its attempts are used up:
//
//	cap.Subscribe("product.deleted", func(ctx context.Context, p ProductDeleted) error {
//		return files.Remove(ctx, p.ID)
//	}, subscribe.Group("files"))
//
// A [Bus] ties a storage and a transport together: [New], [Bus.Start] and
// [Bus.Stop], or [Bus.Run]; with fx, [Module] and [Handlers].
//
// Delivery is at least once. A handler that does its work in the inbox
// transaction (gormstore.Handle, [TxFromContext], or [Publish] with a nil tx)
// has its effect exactly once.
//
// A handler made with subscribe.Reply answers to the topic that its message names
// ([WithReplyTo]).
package cap
