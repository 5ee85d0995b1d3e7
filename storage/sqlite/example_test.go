package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage/sqlite"
)

// The store is what a bus is given; its DB is what the application works with,
// so that a message and what it tells of are committed together.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "cap")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(filepath.Join(dir, "shop.db"), sqlite.Config{})
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	if err := store.Migrate(context.Background()); err != nil {
		panic(err)
	}
	type Product struct {
		ID   int64
		Name string
	}
	db := store.DB()
	if err := db.AutoMigrate(&Product{}); err != nil {
		panic(err)
	}
	err = db.Transaction(func(tx *gorm.DB) error {
		return tx.Create(&Product{Name: "lamp"}).Error
	})
	var n int64
	db.Model(&Product{}).Count(&n)
	fmt.Println(err, n)
	// Output: <nil> 1
}

// A write beside a transaction that the same goroutine holds would wait for
// ever; it fails instead.
func ExampleErrBusy() {
	store, err := sqlite.Open(":memory:", sqlite.Config{BusyTimeout: 10 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	err = store.DB().Transaction(func(*gorm.DB) error {
		return store.DB().Exec("CREATE TABLE x (a)").Error // not through tx
	})
	fmt.Println(errors.Is(err, sqlite.ErrBusy))
	// Output: true
}
