package main

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"
)

// errBehind: an event that comes before this one is missing; it is tried again.
var errBehind = errors.New("the account is behind the event")

// optimistic: the event carries the version of the account that it was made for.
// The first delivery raises it; the others find another version, and change
// nothing.
func optimistic(db *gorm.DB) handler {
	return func(ctx context.Context, p Paid) error {
		const account = "optimistic lock"
		res := db.WithContext(ctx).Exec("UPDATE accounts SET money = money - ?, version = version + 1 WHERE id = ? AND version = ?",
			p.Amount, account, p.Version)
		if res.Error != nil || res.RowsAffected == 1 {
			return res.Error
		}
		var a Account
		if err := db.WithContext(ctx).First(&a, "id = ?", account).Error; err != nil {
			return err
		}
		if a.Version < p.Version {
			return fmt.Errorf("%w: version %d, the event is for %d", errBehind, a.Version, p.Version)
		}
		return nil // applied already
	}
}
