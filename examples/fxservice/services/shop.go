// Package services has two services, a shop and its coupons, which tell each
// other by messages what they have done. How they are put together stands in
// examples/fxservice, with fx, and in examples/fxservice/plain, without.
package services

import (
	"context"
	"log/slog"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
)

// ProductDeleted is the body of product.deleted.
type ProductDeleted struct{ ID int }

// CouponsWithdrawn is the body of coupon.withdrawn.
type CouponsWithdrawn struct{ ProductID, Number int }

// Product is what the shop sells.
type Product struct{ ID int }

// Withdrawal is what the shop knows of coupons.
type Withdrawal struct{ ProductID, Number int }

// Shop deletes products.
type Shop struct {
	subscribe.Class `cap:"coupon"`

	Withdrawn subscribe.On[CouponsWithdrawn] `cap:"withdrawn"`

	db        *gorm.DB
	publisher cap.Publisher
}

// NewShop makes the tables of the shop.
func NewShop(store *gormstore.Store, publisher cap.Publisher) (*Shop, error) {
	s := &Shop{db: store.DB(), publisher: publisher}
	s.Withdrawn = gormstore.Handle(func(_ context.Context, tx *gorm.DB, w CouponsWithdrawn) error {
		slog.Info("the coupons are withdrawn", "product", w.ProductID, "number", w.Number)
		return tx.Create(&Withdrawal{w.ProductID, w.Number}).Error
	})
	return s, s.db.AutoMigrate(&Product{}, &Withdrawal{})
}

// Add adds a product.
func (s *Shop) Add(ctx context.Context, id int) error {
	return s.db.WithContext(ctx).Create(&Product{id}).Error
}

// Delete deletes a product and says so, in one transaction.
func (s *Shop) Delete(ctx context.Context, id int) error {
	return s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Delete(&Product{}, id).Error; err != nil {
			return err
		}
		return s.publisher.Publish(ctx, tx, "product.deleted", ProductDeleted{id})
	})
}
