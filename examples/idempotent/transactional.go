package main

import (
	"context"

	"gorm.io/gorm"
)

// transactional: a handler for gormstore.Handle. What it writes through tx and
// the success of its message are committed together. A repeated message finds its
// row in the inbox; an attempt that fails leaves nothing.
func transactional(_ context.Context, tx *gorm.DB, p Paid) error {
	return debit(tx, "transactional", p.Amount)
}
