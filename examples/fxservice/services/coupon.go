package services

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
)

// Coupon is for one product.
type Coupon struct{ ID, ProductID int }

// Coupons gives coupons, and withdraws those of deleted products.
type Coupons struct {
	subscribe.Class `cap:"product"`

	Deleted subscribe.On[ProductDeleted] `cap:"deleted"`

	db *gorm.DB
}

// NewCoupons makes the table of the coupons.
func NewCoupons(store *gormstore.Store, publisher cap.Publisher) (*Coupons, error) {
	c := &Coupons{db: store.DB()}
	// In the inbox transaction: coupons, answer and success of the message are one.
	c.Deleted = gormstore.Handle(func(ctx context.Context, tx *gorm.DB, p ProductDeleted) error {
		res := tx.Where("product_id = ?", p.ID).Delete(&Coupon{})
		if res.Error != nil {
			return res.Error
		}
		return publisher.Publish(ctx, tx, "coupon.withdrawn", CouponsWithdrawn{p.ID, int(res.RowsAffected)})
	})
	return c, c.db.AutoMigrate(&Coupon{})
}

// Give gives a number of coupons for a product.
func (c *Coupons) Give(ctx context.Context, product, number int) error {
	all := make([]Coupon, number)
	for i := range all {
		all[i].ProductID = product
	}
	return c.db.WithContext(ctx).Create(all).Error
}

// Demo deletes a product that has coupons.
func Demo(ctx context.Context, shop *Shop, coupons *Coupons) error {
	id := int(time.Now().Unix())
	return errors.Join(coupons.Give(ctx, id, 3), shop.Add(ctx, id), shop.Delete(ctx, id))
}
