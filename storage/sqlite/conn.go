package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
)

// connector makes connections that notice when SQLite ends a transaction by
// itself.
type connector struct {
	driver driver.Driver
	dsn    string
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	raw, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	inner, ok := raw.(driverConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("sqlite: the connection of the driver, a %T, is not of the kind expected", raw), raw.Close())
	}
	return &conn{driverConn: inner}, nil
}

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return c.driver }

// driverConn is what database/sql finds in a connection of the driver. To pass
// on less would change how it uses the connection: without SessionResetter and
// Validator, for one, it would drop the connection after a cancelled transaction.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// conn is a connection that lets nothing run in a transaction that SQLite has
// rolled back behind the back of database/sql: it does so when a statement that
// writes is interrupted (its context has ended), and for some errors, such as a
// full disk. It is in autocommit mode then, and what is thought to belong to
// the transaction would be committed statement by statement.
//
// Whether that has happened is asked only after an error, and only when the
// transaction goes on. database/sql makes one call on a connection at a time.
type conn struct {
	driverConn

	inTx  bool
	doubt error // of a statement of the transaction, after which it may be over
	ended error // the answer of a transaction that is over; nil while it is not
}

// Unwrap returns the connection of the driver, for what database/sql does not
// know, such as backups.
func (c *conn) Unwrap() driver.Conn { return c.driverConn }

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	inner, err := c.driverConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.inTx, c.doubt, c.ended = true, nil, nil
	return tx{inner, c}, nil
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	inner, err := c.driverConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, c.failed(err)
	}
	s, ok := inner.(driverStmt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("sqlite: the statement of the driver, a %T, is not of the kind expected", inner), inner.Close())
	}
	return &stmt{s, c}, nil
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	res, err := c.driverConn.ExecContext(ctx, query, args)
	if err != nil && query != probe { // a BEGIN, which gormstore asks with as well, does no harm
		return nil, c.failed(err)
	}
	return res, err
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	return c.rows(c.driverConn.QueryContext(ctx, query, args))
}

// failed remembers that the transaction may be over.
func (c *conn) failed(err error) error {
	if c.inTx && c.doubt == nil {
		c.doubt = err
	}
	return err
}

func (c *conn) rows(inner driver.Rows, err error) (driver.Rows, error) {
	if err != nil {
		return nil, c.failed(err)
	}
	if r, ok := inner.(driverRows); ok && c.inTx {
		return &rows{r, c}, nil
	}
	return inner, nil
}

// probe fails in a transaction, without harm to it, and succeeds outside of one.
const probe = "BEGIN"

// isGeneric tells SQLITE_ERROR: the answer to a begin inside a transaction, and
// to a rollback outside of one.
func isGeneric(err error) bool {
	var e interface{ Code() int }
	return errors.As(err, &e) && e.Code()&0xff == 1
}

// check is called before a statement.
func (c *conn) check(ctx context.Context) error {
	if c.doubt == nil {
		return c.ended
	}
	ctx = context.WithoutCancel(ctx)
	_, err := c.driverConn.ExecContext(ctx, probe, nil)
	if err != nil {
		if isGeneric(err) {
			c.doubt = nil
			return nil
		}
		// Rows that are open keep an interrupt alive: ask again the next time.
		return fmt.Errorf("sqlite: whether the transaction goes on after %q is not known: %w", c.doubt.Error(), err)
	}
	// The error is not wrapped: of the end of a short context, for one, it must
	// not be said again.
	c.ended = fmt.Errorf("sqlite: the database has ended the transaction after %q: %w", c.doubt.Error(), sql.ErrTxDone)
	c.doubt = nil
	if _, err := c.driverConn.ExecContext(ctx, "ROLLBACK", nil); err != nil {
		return errors.Join(c.ended, err)
	}
	return c.ended
}

// tx is a transaction on a conn.
type tx struct {
	driver.Tx

	c *conn
}

// Commit implements driver.Tx.
func (t tx) Commit() error {
	if err := t.c.check(context.Background()); err != nil { //nolint:forbidigo // nothing is waited for
		return errors.Join(err, t.Rollback())
	}
	t.c.inTx = false
	return t.Tx.Commit()
}

// Rollback implements driver.Tx. Where SQLite was faster it does nothing.
func (t tx) Rollback() error {
	c := t.c
	ended, doubt := c.ended, c.doubt
	c.inTx, c.doubt, c.ended = false, nil, nil
	if ended != nil {
		return nil
	}
	err := t.Tx.Rollback()
	if doubt != nil && isGeneric(err) { // there is nothing to roll back
		return nil
	}
	return err
}

// driverStmt is what database/sql finds in a statement of the driver.
type driverStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// stmt is a prepared statement of a conn.
type stmt struct {
	driverStmt

	c *conn
}

// ExecContext implements driver.StmtExecContext.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.c.check(ctx); err != nil {
		return nil, err
	}
	res, err := s.driverStmt.ExecContext(ctx, args)
	if err != nil {
		return nil, s.c.failed(err)
	}
	return res, nil
}

// QueryContext implements driver.StmtQueryContext.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.c.check(ctx); err != nil {
		return nil, err
	}
	return s.c.rows(s.driverStmt.QueryContext(ctx, args))
}

// driverRows is what database/sql finds in rows of the driver.
type driverRows interface {
	driver.Rows
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

// rows are those of a statement in a transaction.
type rows struct {
	driverRows

	c *conn
}

// Next implements driver.Rows.
func (r *rows) Next(dest []driver.Value) error {
	err := r.driverRows.Next(dest)
	if err != nil && !errors.Is(err, io.EOF) {
		return r.c.failed(err)
	}
	return err
}
