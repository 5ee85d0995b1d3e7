package mysql_test

import (
	"context"
	"log"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage/mysql"
)

// The store is what a bus is given; its DB is what the application works with,
// so that a message and what it tells of are committed together.
func ExampleOpen() {
	store, err := mysql.Open("shop:secret@tcp(db.example:3306)/shop", mysql.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if err := store.Migrate(context.Background()); err != nil { // the start of a bus does it, too
		log.Print(err)
		return
	}
	type Product struct {
		ID   int64
		Name string
	}
	err = store.DB().Transaction(func(tx *gorm.DB) error {
		return tx.Create(&Product{Name: "lamp"}).Error
	})
	log.Print(err)
}
