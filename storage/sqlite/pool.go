package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage/gormstore"
)

// ErrBusy means that the one writing connection of this process was not free
// within Config.BusyTimeout.
var ErrBusy = errors.New("the writing connection is in use")

var (
	_ gorm.ConnPool        = (*pool)(nil)
	_ gorm.TxBeginner      = (*pool)(nil)
	_ gorm.GetDBConnector  = (*pool)(nil)
	_ gormstore.ReadPooler = (*pool)(nil)
	_ gormstore.Urgenter   = (*pool)(nil)
)

// pool is the gorm.ConnPool over a writing connection and some reading ones. The
// store's own looks have connections to themselves: rows that the application
// reads slowly must not hold up messages. A database in memory has one
// connection for all.
type pool struct {
	write, read, look *sql.DB
	wait              time.Duration // for the writing connection
	turns             turns         // held by who has the writing connection

	closing  sync.Once
	closeErr error
}

// ReadPool implements gormstore.ReadPooler.
func (p *pool) ReadPool() *sql.DB { return p.look }

// Urgent implements gormstore.Urgenter.
func (p *pool) Urgent(ctx context.Context) context.Context {
	return context.WithValue(ctx, urgentKey{}, true)
}

// GetDBConn implements gorm.GetDBConnector: db.DB() is the writing pool.
func (p *pool) GetDBConn() (*sql.DB, error) { return p.write, nil }

// Close closes all pools, once.
func (p *pool) Close() error {
	p.closing.Do(func() {
		p.closeErr = errors.Join(p.look.Close(), p.read.Close(), p.write.Close())
	})
	return p.closeErr
}

// BeginTx implements gorm.TxBeginner. The waiting is bounded; the transaction's
// life is bounded by ctx alone. One that is to read only gets a reading
// connection, and sees one state of the database throughout.
func (p *pool) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	if opts != nil && opts.ReadOnly {
		return p.read.BeginTx(ctx, opts)
	}
	conn, err := p.conn(ctx)
	if err != nil {
		return nil, err
	}
	// Close waits for the transaction, and then gives the connection back.
	tx, err := conn.BeginTx(ctx, opts)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go conn.Close() //nolint:errcheck // there is nothing to report it to
	return tx, nil
}

// ExecContext implements gorm.ConnPool.
func (p *pool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	conn, err := p.conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // it only gives the connection back
	return conn.ExecContext(ctx, query, args...)
}

// QueryContext implements gorm.ConnPool.
func (p *pool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if p.reads(query) {
		return p.read.QueryContext(ctx, query, args...)
	}
	conn, err := p.conn(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	// Close waits for the rows to be closed.
	go conn.Close() //nolint:errcheck // as in BeginTx
	return rows, nil
}

// QueryRowContext implements gorm.ConnPool.
func (p *pool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if p.reads(query) {
		return p.read.QueryRowContext(ctx, query, args...)
	}
	conn, err := p.conn(ctx)
	if err != nil {
		return rowOf(ctx, err)
	}
	row := conn.QueryRowContext(ctx, query, args...)
	go conn.Close() //nolint:errcheck // as in QueryContext
	return row
}

// PrepareContext implements gorm.ConnPool. A statement may come to run in a
// transaction, so it belongs to the writing pool; only the preparing is bounded.
func (p *pool) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	bounded, cancel := context.WithTimeout(ctx, p.wait)
	defer cancel()
	stmt, err := p.write.PrepareContext(bounded, query) //nolint:sqlclosecheck // the caller does
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, p.busy()
	}
	return stmt, err
}

// writing is the writing connection in the hands of one who waited for his turn.
type writing struct {
	*sql.Conn
	turns *turns
}

// Close waits until the connection is not in use any more, and lets the next one
// have it.
func (w writing) Close() error {
	err := w.Conn.Close()
	w.turns.give()
	return err
}

// conn waits for the writing connection.
func (p *pool) conn(ctx context.Context) (writing, error) {
	bounded, cancel := context.WithTimeout(ctx, p.wait)
	defer cancel()
	err := p.turns.take(bounded)
	if err == nil {
		var conn *sql.Conn
		if conn, err = p.write.Conn(bounded); err == nil {
			return writing{conn, &p.turns}, nil
		}
		p.turns.give()
	}
	if bounded.Err() != nil && ctx.Err() == nil {
		err = p.busy()
	}
	return writing{}, err
}

func (p *pool) busy() error {
	return fmt.Errorf("sqlite: %w for more than %v: does the caller hold a transaction, or rows that are not closed? "+
		"then use that transaction; do very many write at once? then raise Config.BusyTimeout", ErrBusy, p.wait)
}

// reads tells that a statement only reads.
func (p *pool) reads(query string) bool {
	const word = "SELECT"
	query = strings.TrimLeft(query, " \t\r\n")
	return len(query) > len(word) && strings.EqualFold(query[:len(word)], word) &&
		strings.IndexByte(" \t\r\n*('\"`", query[len(word)]) >= 0
}

// rowOf makes a row that answers with err. Only a *sql.DB can make one.
func rowOf(ctx context.Context, err error) *sql.Row {
	db := sql.OpenDB(failing{err})
	defer db.Close() //nolint:errcheck // it has no connection
	return db.QueryRowContext(ctx, "")
}

// failing is a connector that never connects.
type failing struct{ err error }

func (f failing) Connect(context.Context) (driver.Conn, error) { return nil, f.err }

func (f failing) Driver() driver.Driver { return nil }
