package gormstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
)

// inboxTx is a transaction that the engine began for a handler.
type inboxTx struct {
	*writer
	db *gorm.DB
	tx sqlTx
}

// sqlTx is what we use of a transaction of our own.
type sqlTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Begin implements storage.Storage. The transaction has the database's only
// write lock from here on; Value is a *gorm.DB as db.Begin returns it.
func (s *Store) Begin(ctx context.Context) (storage.Tx, error) {
	if s.err != nil {
		return nil, s.err
	}
	var t *inboxTx
	err := s.untilFree(ctx, func() (err error) {
		t, err = s.begin(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("gormstore: begin: %w", err)
	}
	return t, nil
}

func (s *Store) begin(ctx context.Context) (*inboxTx, error) {
	db := s.db.Session(&gorm.Session{NewDB: true, Context: ctx}).Begin()
	if db.Error != nil {
		return nil, db.Error
	}
	e, err := gormTx(db)
	if err != nil {
		return nil, errors.Join(err, db.Rollback().Error)
	}
	tx, ok := e.(sqlTx)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T has no QueryContext", e), e.Rollback())
	}
	for _, q := range []string{s.text.lock(), savepoint} {
		if _, err := s.hot.exec(ctx, tx, q); err != nil {
			if rb := e.Rollback(); rb != nil && !isTxDone(rb) {
				err = errors.Join(err, rb)
			}
			return nil, err
		}
	}
	return &inboxTx{writer: &writer{s: s, exec: e}, db: db, tx: tx}, nil
}

// Value implements storage.Tx.
func (t *inboxTx) Value() any { return t.db }

// Settle implements storage.Tx. Releasing the savepoint fails when SQLite, or
// the handler, has ended the transaction meanwhile; without that the settling
// statement would be committed alone.
func (t *inboxTx) Settle(ctx context.Context, m storage.Member, o storage.Outcome) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("gormstore: settle %s: %w", o.ID, err)
	}
	if _, err := t.s.hot.exec(context.WithoutCancel(ctx), t.tx, releaseSavepoint); err != nil {
		return fmt.Errorf("gormstore: settle %s: %w: %w", o.ID, storage.ErrTxDone, err)
	}
	lost, err := t.s.settleIn(context.WithoutCancel(ctx), t.tx, storage.Inbox, m.Number(), []storage.Outcome{o})
	if err != nil {
		return fmt.Errorf("gormstore: settle %s: %w", o.ID, err)
	}
	if len(lost) > 0 {
		return fmt.Errorf("gormstore: settle %s: %w", o.ID, storage.ErrLost)
	}
	return nil
}

// Commit implements storage.Tx.
func (t *inboxTx) Commit() error {
	err := t.exec.(gorm.TxCommitter).Commit()
	switch {
	case err == nil:
		return nil
	case isTxDone(err):
		return fmt.Errorf("gormstore: commit: %w (%w)", storage.ErrTxDone, err)
	}
	return fmt.Errorf("gormstore: commit: %w", err)
}

// Rollback implements storage.Tx.
func (t *inboxTx) Rollback() error {
	err := t.exec.(gorm.TxCommitter).Rollback()
	if err == nil || isTxDone(err) || stillBegun(err) {
		// The last: SQLite has nothing to roll back any more.
		return nil
	}
	return fmt.Errorf("gormstore: rollback: %w", err)
}
