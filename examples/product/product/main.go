// Command product owns the products. Its lesson: what is deleted in seven tables
// and the message that tells of it are one transaction.
//
//	go run ./examples/product/product -seed 5
//	go run ./examples/product/product -delete 2
//	go run ./examples/product/product -recall 1
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/examples/product/setup"
)

// Product is the first of the seven tables; the others refer to it.
type Product struct {
	ID   int `gorm:"primaryKey;autoIncrement:false"`
	Name string
}

// Part is what a table has that belongs to a product.
type Part struct {
	ID        int `gorm:"primaryKey"`
	ProductID int `gorm:"index"`
	Value     string
}

type (
	ProductImage       struct{ Part }
	ProductPrice       struct{ Part }
	ProductStock       struct{ Part }
	ProductReview      struct{ Part }
	ProductCategory    struct{ Part }
	ProductTranslation struct{ Part }
)

func main() { setup.Main(run) }

func run() (err error) {
	s := setup.Flags("product")
	seed := flag.Int("seed", 0, "make products 1 to `n`, unless they are there")
	del := flag.Int("delete", 0, "delete product `id`, and tell")
	recall := flag.Int("recall", 0, "tell of the recall of product `id`")
	flag.Parse()
	tables := []any{&ProductImage{}, &ProductPrice{}, &ProductStock{}, &ProductReview{}, &ProductCategory{}, &ProductTranslation{}, &Product{}}
	if err := s.Open(cap.Options{}, tables...); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Run(func(ctx context.Context) error {
		db := s.Store.DB().WithContext(ctx)
		for id := 1; id <= *seed; id++ {
			if err := add(db, id); err != nil {
				return err
			}
		}
		if *del != 0 {
			if err := remove(ctx, db, s.Bus, tables, *del); err != nil {
				return err
			}
		}
		if *recall != 0 { // nothing changes here, so the message is its own transaction
			return s.Bus.Publish(ctx, cap.NoTx, "product.recalled", setup.Product{ID: *recall})
		}
		return nil
	})
}

func add(db *gorm.DB, id int) error {
	return db.Transaction(func(tx *gorm.DB) error {
		p := Product{ID: id, Name: fmt.Sprintf("product %d", id)}
		if res := tx.FirstOrCreate(&p); res.Error != nil || res.RowsAffected == 0 {
			return res.Error
		}
		rows := Part{ProductID: id, Value: p.Name}
		for _, row := range []any{&ProductImage{rows}, &ProductPrice{rows}, &ProductStock{rows}, &ProductReview{rows}, &ProductCategory{rows}, &ProductTranslation{rows}} {
			if err := tx.Create(row).Error; err != nil {
				return err
			}
		}
		return nil
	})
}

// remove deletes the product from all its tables and publishes product.deleted:
// everything or nothing, whatever fails, and whenever the process dies.
func remove(ctx context.Context, db *gorm.DB, bus cap.Publisher, tables []any, id int) error {
	return db.Transaction(func(tx *gorm.DB) error {
		for _, table := range tables {
			column := "product_id"
			if _, ok := table.(*Product); ok {
				column = "id"
			}
			if err := tx.Where(column+" = ?", id).Delete(table).Error; err != nil {
				return err
			}
		}
		return bus.Publish(ctx, tx, "product.deleted", setup.Product{ID: id})
	})
}
