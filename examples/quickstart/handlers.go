package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
)

// Each group gets its own copy of every message and keeps tables of its own. The
// two show the two ways to write a handler.

// errNotYet asks for another attempt. Messages may overtake each other: that of
// the deletion can come while the handler of the creation is still being retried.
var errNotYet = errors.New("product.created of this product is not handled yet")

// Coupon is a row of group coupon. Nothing in the table keeps a product from
// having two of them: that a message has its effect exactly once does.
type Coupon struct {
	ID        int64
	ProductID int64 `gorm:"index"`
	Code      string
}

// subscribeCoupon works in the inbox transaction: what a handler writes and that
// its message is handled are committed together, so it never happens twice.
func subscribeCoupon() {
	cap.Subscribe("product.created", gormstore.Handle(issueCoupon), subscribe.Group("coupon"))
	cap.Subscribe("product.deleted", gormstore.Handle(withdrawCoupon), subscribe.Group("coupon"))
}

func issueCoupon(_ context.Context, tx *gorm.DB, p ProductCreated) error {
	return tx.Create(&Coupon{ProductID: p.ID, Code: "SAVE-" + rand.Text()[:6]}).Error
}

func withdrawCoupon(_ context.Context, tx *gorm.DB, p ProductDeleted) error {
	res := tx.Delete(&Coupon{}, "product_id = ?", p.ID)
	if res.Error == nil && res.RowsAffected == 0 {
		return errNotYet
	}
	return res.Error
}

// File is a row of group files. The path is its key, and a removed file keeps its
// row: so each handler can run again without harm.
type File struct {
	Path      string `gorm:"primaryKey"`
	ProductID int64  `gorm:"index"`
	Removed   bool
}

// files works outside of the inbox transaction, as every handler does that calls
// another system. When the process dies between its work and the note that the
// message is handled, it runs again: it must bear that.
type files struct{ db *gorm.DB }

func subscribeFiles(db *gorm.DB) {
	f := files{db}
	cap.Subscribe("product.created", f.upload, subscribe.Group("files"))
	cap.Subscribe("product.deleted", f.remove, subscribe.Group("files"))
}

// upload fails twice for each product, for you to see how it is tried again.
func (f files) upload(ctx context.Context, p ProductCreated) error {
	if info, ok := cap.InfoFromContext(ctx); ok && info.Attempt < 3 {
		return fmt.Errorf("the file server does not answer (attempt %d; the third will succeed)", info.Attempt)
	}
	rows := []File{
		{Path: fmt.Sprintf("product-%d/photo.jpg", p.ID), ProductID: p.ID},
		{Path: fmt.Sprintf("product-%d/manual.pdf", p.ID), ProductID: p.ID},
	}
	return f.db.WithContext(ctx).Clauses(clause.OnConflict{DoNothing: true}).Create(&rows).Error
}

func (f files) remove(ctx context.Context, p ProductDeleted) error {
	res := f.db.WithContext(ctx).Model(&File{}).Where("product_id = ?", p.ID).Update("removed", true)
	if res.Error == nil && res.RowsAffected == 0 {
		return errNotYet
	}
	return res.Error
}
