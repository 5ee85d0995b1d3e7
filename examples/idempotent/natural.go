package main

import (
	"context"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Effects that are the same however often they happen need nothing else. They
// have four shapes; look for one of them first.

// absolute: the event says what is, not what changes.
func absolute(db *gorm.DB) handler {
	return func(ctx context.Context, p Paid) error {
		return db.WithContext(ctx).Exec("UPDATE accounts SET money = ? WHERE id = ?", p.Balance, "absolute").Error
	}
}

// mark: a flag that is set stays set.
func mark(db *gorm.DB) handler {
	return func(ctx context.Context, p Paid) error {
		return db.WithContext(ctx).Model(&Booking{Account: "mark", Order: p.Order}).Update("paid", true).Error
	}
}

// insert: a row under a key of the business is there once.
func insert(db *gorm.DB) handler {
	return func(ctx context.Context, p Paid) error {
		return db.WithContext(ctx).Clauses(clause.OnConflict{DoNothing: true}).
			Create(&Booking{Account: "insert", Order: "payment of " + p.Order, Amount: p.Amount, Paid: true}).Error
	}
}

// precondition: the state that the change starts from stands in the WHERE, and
// what depends on it happens only if a row was changed, in the same transaction.
func precondition(db *gorm.DB) handler {
	return func(ctx context.Context, p Paid) error {
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			open := tx.Model(&Booking{}).Where(&Booking{Account: "precondition", Order: p.Order}).Where("NOT paid").Update("paid", true)
			if open.Error != nil || open.RowsAffected == 0 {
				return open.Error
			}
			return debit(tx, "precondition", p.Amount)
		})
	}
}
