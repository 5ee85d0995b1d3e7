// Package pgxtx lets messages be published in a transaction of pgx.
//
// [Bind] goes into the Binders of a storage for PostgreSQL. [Tracer] goes into
// the config of the application's pool and is optional: with it a message
// leaves as soon as its transaction is committed; without it the engine looks
// for the rows some 5 to 50 ms apart, for 10 seconds.
//
// A *sql.Tx over pgx (its package stdlib) needs neither: every SQL storage
// knows that type.
//
// Tested with PostgreSQL 15 and pgx 5.13.
package pgxtx

import (
	"context"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/capbus/gocap/storage"
)

var _ storage.TxBinder = Bind

// The states of a connection, as the server tells them with every answer.
const (
	idle   = 'I' // in no transaction
	failed = 'E' // in one that an error has aborted
)

// Bind implements storage.TxBinder for pgx.Tx: that of a connection, that of a
// pool, and those nested in them, which are savepoints. It does no I/O, and is
// called by the goroutine that uses the transaction.
//
// It refuses nil (storage.ErrNoTx); a transaction that has ended, whose
// connection is closed, or that an error has aborted (storage.ErrTxDone); and
// pools and connections (*storage.TxTypeError).
//
// What it returns implements storage.EndNotifier if the connection has a
// Tracer. It tells of the end of the outermost transaction: the commit of a
// nested one commits nothing.
func Bind(tx any) (e storage.Execer, ok bool, err error) {
	switch v := tx.(type) {
	case nil:
		return nil, false, fmt.Errorf("pgxtx: %w: nil was given", storage.ErrNoTx)
	case pgx.Tx:
		e, err := bind(v)
		return e, true, err
	}
	if h := hint(tx); h != "" {
		return nil, true, &storage.TxTypeError{Got: tx, Accepted: []string{"pgx.Tx"}, Hint: h}
	}
	return nil, false, nil
}

func hint(tx any) string {
	switch tx.(type) {
	case *pgxpool.Pool:
		return "it is a pool of connections: begin a transaction with its Begin"
	case *pgx.Conn, *pgxpool.Conn:
		return "it is a connection: begin a transaction with its Begin"
	case *pgx.Tx:
		return "give the pgx.Tx itself, not a pointer to it"
	case pgxpool.Tx:
		return "give the pointer"
	}
	return ""
}

func bind(tx pgx.Tx) (e storage.Execer, err error) {
	if v := reflect.ValueOf(tx); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("pgxtx: %w: %T(nil) was given", storage.ErrNoTx, tx)
	}
	defer func() {
		if r := recover(); r != nil { // a wrapper around nothing, such as a zero pgxpool.Tx
			e, err = nil, fmt.Errorf("pgxtx: %w: the %T holds none", storage.ErrNoTx, tx)
		}
	}()
	ctx := context.Background() //nolint:forbidigo // nothing is waited for
	if err := usable(ctx, tx); err != nil {
		return nil, err
	}
	conn := tx.Conn()
	if conn == nil {
		return execer{tx}, nil
	}
	if conn.PgConn().TxStatus() == failed {
		return nil, ended(aborted, nil)
	}
	if w := watchOf(conn); w != nil {
		return toldExecer{execer{tx}, w}, nil
	}
	return execer{tx}, nil
}

// usable finds out whether statements of tx run in a transaction.
func usable(ctx context.Context, tx pgx.Tx) error {
	// Nothing is sent for a batch of nothing; but a transaction that was
	// committed or rolled back says so. It has to be asked first: its connection
	// may be in other hands by now.
	if res := tx.SendBatch(ctx, &pgx.Batch{}); res != nil {
		if err := res.Close(); isClosed(err) {
			return ended(closed, err)
		}
	}
	conn := tx.Conn()
	switch {
	case conn == nil: // a type of somebody's tests
		return nil
	case conn.IsClosed():
		return ended(lost, nil)
	case conn.PgConn().TxStatus() == idle:
		return ended(none, nil)
	}
	return nil
}
