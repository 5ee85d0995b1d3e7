package pgxtx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/capbus/gocap/storage"
)

var (
	_ storage.Execer      = execer{}
	_ storage.Execer      = toldExecer{}
	_ storage.EndNotifier = toldExecer{}
)

// inFailedTransaction is the SQLSTATE of a statement in an aborted transaction.
const inFailedTransaction = "25P02"

// What has become of a transaction.
const (
	closed  = "it was committed or rolled back"
	aborted = "an error has aborted it; it can only be rolled back"
	lost    = "its connection is closed"
	none    = "its connection is in none, so that the statement would be committed by itself"
)

// execer runs statements in a transaction of pgx.
type execer struct{ tx pgx.Tx }

// toldExecer can tell when its transaction has ended.
type toldExecer struct {
	execer
	*watch
}

// ExecContext implements storage.Execer. Errors are those of pgx, a
// *pgconn.PgError among them; that of a transaction which has ended is also
// storage.ErrTxDone and sql.ErrTxDone. A ctx that ends during the statement
// costs the connection, as always with pgx.
//
// The statement goes in the connection's query mode. In the modes exec and
// simple_protocol a []byte is a bytea and nothing else, so that a text for all
// modes takes a uuid as $1::uuid from a string.
func (e execer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := usable(ctx, e.tx); err != nil {
		return nil, err
	}
	tag, err := e.tx.Exec(ctx, query, args...)
	if err == nil {
		return result(tag.RowsAffected()), nil
	}
	var refused *pgconn.PgError
	switch {
	case isClosed(err):
		return nil, ended(closed, err)
	case errors.As(err, &refused) && refused.Code == inFailedTransaction:
		return nil, ended(aborted, err)
	}
	return nil, fmt.Errorf("pgxtx: %w", err)
}

func isClosed(err error) bool { return errors.Is(err, pgx.ErrTxClosed) }

// result is the number of rows that a statement has changed.
type result int64

func (r result) RowsAffected() (int64, error) { return int64(r), nil }

func (r result) LastInsertId() (int64, error) {
	return 0, errors.New("pgxtx: PostgreSQL has no last insert id")
}

// endedError is storage.ErrTxDone with a reason, and the errors that it is
// besides, without their texts.
type endedError struct {
	why string
	err error
}

func ended(why string, err error) error { return &endedError{why: why, err: err} }

func (e *endedError) Error() string { return fmt.Sprintf("pgxtx: %v: %s", storage.ErrTxDone, e.why) }

func (e *endedError) Unwrap() []error {
	errs := []error{storage.ErrTxDone, sql.ErrTxDone}
	if e.err != nil {
		errs = append(errs, e.err)
	}
	return errs
}
