// Command coupon owns the coupons of products. Its lesson: a handler in the inbox
// transaction has its effect exactly once, however often the message comes.
//
//	go run ./examples/product/coupon -seed 5
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/examples/product/setup"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
)

// Coupon is for one product.
type Coupon struct {
	Code      string `gorm:"primaryKey;size:40"`
	ProductID int    `gorm:"index"`
}

// Removal says how many coupons were removed for a deleted product. Without the
// inbox a message that comes twice would leave two.
type Removal struct {
	ID        int `gorm:"primaryKey"`
	ProductID int
	Coupons   int64
}

func main() { setup.Main(run) }

func run() (err error) {
	s := setup.Flags("coupon")
	seed := flag.Int("seed", 0, "make two coupons for each of the products 1 to `n`, unless they are there")
	flag.Parse()
	deleted := subscribe.To("product.deleted", gormstore.Handle(removeCoupons))
	err = s.Open(cap.Options{Subscriptions: []subscribe.Subscription{deleted}}, &Coupon{}, &Removal{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Run(func(ctx context.Context) error {
		for id := 1; id <= *seed; id++ {
			for _, kind := range []string{"spring", "autumn"} {
				c := Coupon{Code: fmt.Sprintf("%s-%d", kind, id), ProductID: id}
				if err := s.Store.DB().WithContext(ctx).FirstOrCreate(&c).Error; err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// removeCoupons works in the transaction that marks the message as handled: what
// it writes and the mark are committed together, or not at all.
func removeCoupons(_ context.Context, tx *gorm.DB, p setup.Product) error {
	res := tx.Where("product_id = ?", p.ID).Delete(&Coupon{})
	if res.Error != nil {
		return res.Error
	}
	return tx.Create(&Removal{ProductID: p.ID, Coupons: res.RowsAffected}).Error
}
