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
	tx conn
	// over tells that the context of the transaction has ended, and so has it.
	over func() error
}

// Begin implements storage.Storage. On SQLite the transaction has the only write
// lock from here on; on MySQL and MariaDB it is READ COMMITTED, whatever the
// server's default. Value is a *gorm.DB as db.Begin returns it.
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
		if s.d.missing(err) {
			err = s.txError(err)
		}
		return nil, fmt.Errorf("gormstore: begin: %w", err)
	}
	return t, nil
}

func (s *Store) begin(ctx context.Context) (*inboxTx, error) {
	db := s.db.Session(&gorm.Session{NewDB: true, Context: ctx}).Begin(s.beginOptions()...)
	if db.Error != nil {
		return nil, db.Error
	}
	e, err := gormTx(db)
	if err != nil {
		return nil, errors.Join(err, db.Rollback().Error)
	}
	tx := s.hot.on(e)
	for _, q := range []query{s.d.lock(), s.d.guard()} {
		if _, err := q.changed(ctx, tx); err != nil {
			if rb := e.Rollback(); rb != nil && !isTxDone(rb) {
				err = errors.Join(err, rb)
			}
			return nil, err
		}
	}
	return &inboxTx{writer: &writer{s: s, exec: e}, db: db, tx: tx, over: ctx.Err}, nil
}

func (s *Store) beginOptions() []*sql.TxOptions {
	if o := s.d.options(); o != nil {
		return []*sql.TxOptions{o}
	}
	return nil
}

// Value implements storage.Tx.
func (t *inboxTx) Value() any { return t.db }

// Settle implements storage.Tx. Releasing the savepoint fails when the database,
// or the handler, has ended the transaction meanwhile; without that the settling
// statement would be committed alone.
func (t *inboxTx) Settle(ctx context.Context, m storage.Member, o storage.Outcome) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("gormstore: settle %s: %w", o.ID, err)
	}
	if t.s.d.uncancelled() {
		ctx = context.WithoutCancel(ctx)
	}
	if _, err := t.s.d.release().changed(ctx, t.tx); err != nil {
		return fmt.Errorf("gormstore: settle %s: %w: %w", o.ID, storage.ErrTxDone, err)
	}
	lost, err := t.s.settleIn(ctx, t.tx, settling{box: storage.Inbox, number: m.Number(), inTx: true}, []storage.Outcome{o})
	if err != nil {
		return fmt.Errorf("gormstore: settle %s: %w", o.ID, t.s.txError(err))
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
	if err == nil || isTxDone(err) || t.s.d.ended(err) || t.over() != nil {
		// There is nothing to roll back any more; with the context, a driver may
		// have given up its connection instead.
		return nil
	}
	return fmt.Errorf("gormstore: rollback: %w", err)
}
