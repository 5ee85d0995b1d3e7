package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// inTx is an argument of statements that must be run in a transaction. The
// driver knows whether it is in one: the server says so with every answer.
type inTx struct{}

var _ pgx.QueryRewriter = inTx{}

// RewriteQuery leaves the statement as it is.
func (inTx) RewriteQuery(_ context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	if conn.PgConn().TxStatus() == 'I' { // idle
		return "", nil, noTxError{}
	}
	return sql, args, nil
}

// noTxError is as the server's answer to what works in a transaction only.
type noTxError struct{}

func (noTxError) Error() string {
	return "there is no transaction any more: a statement of the application has ended it"
}

// SQLState is no_active_sql_transaction.
func (noTxError) SQLState() string { return "25P01" }
