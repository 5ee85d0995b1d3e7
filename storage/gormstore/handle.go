package gormstore

import (
	"context"
	"database/sql"
	"fmt"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
)

// Handle makes a handler for messages of type T out of a function that works in
// the inbox transaction: what it writes through tx, what it publishes and the
// success of its message are committed together, or not at all. tx carries ctx.
// The function neither commits nor rolls back: it returns nil or an error.
//
// The transaction is open from the beginning of fn to its end. On SQLite it is
// the only one: everybody else's writes wait, and fail after BusyTimeout, so keep
// it to milliseconds; an attempt that takes half of Options.FallbackWindow fails.
// What takes long, such as a call over the network, goes before it, in a plain
// handler that asks for cap.TxFromContext afterwards.
//
// Outside a handler of a running bus the error is storage.ErrNoTx; it is an
// error, too, when the bus keeps its inbox in another kind of storage.
func Handle[T any](fn func(ctx context.Context, tx *gorm.DB, msg T) error) func(context.Context, T) error {
	if fn == nil {
		return nil // who registers it is told
	}
	return func(ctx context.Context, msg T) error {
		db, err := txFromContext(ctx)
		if err != nil {
			return fmt.Errorf("gormstore: Handle: %w", err)
		}
		return fn(ctx, db.WithContext(ctx), msg)
	}
}

// SQLHandle is as Handle, but for functions that work with a *sql.Tx.
func SQLHandle[T any](fn func(ctx context.Context, tx *sql.Tx, msg T) error) func(context.Context, T) error {
	if fn == nil {
		return nil // who registers it is told
	}
	return func(ctx context.Context, msg T) error {
		db, err := txFromContext(ctx)
		if err != nil {
			return fmt.Errorf("gormstore: SQLHandle: %w", err)
		}
		e, err := gormTx(db)
		if err != nil {
			return err
		}
		tx, ok := e.(*sql.Tx)
		if !ok {
			return fmt.Errorf("gormstore: SQLHandle: the transaction is a %T, not a *sql.Tx", e)
		}
		return fn(ctx, tx, msg)
	}
}

func txFromContext(ctx context.Context) (*gorm.DB, error) {
	tx, err := storage.TxFromContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("the context has no inbox transaction; it is there while a bus runs the handler: %w", err)
	}
	db, ok := tx.Value().(*gorm.DB)
	if !ok {
		return nil, fmt.Errorf("the bus keeps its inbox elsewhere: its transaction is a %T, not a *gorm.DB", tx.Value())
	}
	return db, nil
}
