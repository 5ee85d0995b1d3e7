package main

import (
	"context"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
)

// Paid is the event: an order was paid from an account. It says what the balance
// is afterwards, and which version of the account it was made for, so that its
// receivers can be natural, or lock optimistically.
type Paid struct {
	Order            string
	Amount           int
	Balance, Version int
}

type handler func(context.Context, Paid) error

// Account is one lesson's copy of the account. All begin with 100.
type Account struct {
	ID      string `gorm:"primaryKey"`
	Money   int
	Version int
}

// Booking is an order on an account.
type Booking struct {
	Account string `gorm:"primaryKey"`
	Order   string `gorm:"primaryKey"`
	Amount  int
	Paid    bool
}

const (
	opening = 100
	amount  = 10
)

// openBooks makes the tables, with an account for each lesson.
func openBooks(file string) (*gormstore.Store, error) {
	store, err := sqlite.Open(file, sqlite.Config{})
	if err != nil {
		return nil, err
	}
	return store, store.DB().AutoMigrate(&Account{}, &Booking{})
}

// openAccount puts an account with an order that is open on the books.
func openAccount(db *gorm.DB, id string) error {
	if err := db.Create(&Account{ID: id, Money: opening, Version: 1}).Error; err != nil {
		return err
	}
	return db.Create(&Booking{Account: id, Order: "order 7", Amount: amount}).Error
}

// debit takes an amount from an account: done twice, it is taken twice.
func debit(db *gorm.DB, account string, amount int) error {
	return db.Exec("UPDATE accounts SET money = money - ? WHERE id = ?", amount, account).Error
}

// balance is the money of an account.
func balance(db *gorm.DB, account string) (int, error) {
	var a Account
	err := db.First(&a, "id = ?", account).Error
	return a.Money, err
}

// left is what is left of the opening balance by the paid bookings.
func left(db *gorm.DB, account string) (int, error) {
	var paid int
	err := db.Model(&Booking{}).Where("account = ? AND paid", account).Select("coalesce(sum(amount), 0)").Scan(&paid).Error
	return opening - paid, err
}
