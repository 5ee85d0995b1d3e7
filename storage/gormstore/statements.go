package gormstore

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/capbus/gocap/storage"
)

// maxStatements bounds the prepared statements; further texts are not kept.
const maxStatements = 64

// statements runs texts on a pool as prepared statements: SQLite takes longer to
// parse and plan a look than to carry it out.
type statements struct {
	db interface {
		querier
		PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	}

	mu     sync.RWMutex
	byText map[string]*sql.Stmt // nil once closed
}

// QueryContext is as that of *sql.DB.
func (s *statements) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	stmt, err := s.prepared(ctx, query) //nolint:sqlclosecheck // close does
	if err != nil {
		return nil, err
	}
	if stmt == nil {
		return s.db.QueryContext(ctx, query, args...)
	}
	return stmt.QueryContext(ctx, args...)
}

// prepared returns the statement of a text; nil: there is no room to keep it.
func (s *statements) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	s.mu.RLock()
	stmt, room := s.byText[query], s.byText != nil && len(s.byText) < maxStatements
	s.mu.RUnlock()
	if stmt != nil || !room {
		return stmt, nil
	}
	fresh, err := s.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	stmt = s.byText[query]
	if stmt == nil && s.byText != nil && len(s.byText) < maxStatements {
		s.byText[query], stmt, fresh = fresh, fresh, nil
	}
	s.mu.Unlock()
	if fresh != nil {
		err = fresh.Close()
	}
	return stmt, err
}

// prepare makes statements of texts, for exec and query. It needs a connection
// of the pool, and must not be called by who holds a transaction on it.
func (s *statements) prepare(ctx context.Context, texts ...string) error {
	for _, text := range texts {
		if _, err := s.prepared(ctx, text); err != nil { //nolint:sqlclosecheck // close does
			return err
		}
	}
	return nil
}

// in returns the statement of a text within a transaction; nil: it has not been
// prepared, or the transaction is not a plain one, of which alone it is known
// what it does with the statement.
func (s *statements) in(ctx context.Context, tx any, text string) *sql.Stmt {
	s.mu.RLock()
	stmt := s.byText[text]
	s.mu.RUnlock()
	if own, ok := tx.(*sql.Tx); ok && stmt != nil {
		return own.StmtContext(ctx, stmt)
	}
	return nil
}

// exec runs a text in a transaction, prepared where it has been.
func (s *statements) exec(ctx context.Context, tx storage.Execer, text string, args ...any) (sql.Result, error) {
	if stmt := s.in(ctx, tx, text); stmt != nil { //nolint:sqlclosecheck // the end of the transaction closes it
		res, err := stmt.ExecContext(ctx, args...)
		if err == nil || !elsewhere(err) {
			return res, err
		}
	}
	return tx.ExecContext(ctx, text, args...)
}

// query is as exec, for a text that answers with rows.
func (s *statements) query(ctx context.Context, tx querier, text string, args ...any) (*sql.Rows, error) {
	if stmt := s.in(ctx, tx, text); stmt != nil { //nolint:sqlclosecheck // as in exec
		rows, err := stmt.QueryContext(ctx, args...)
		if err == nil || !elsewhere(err) {
			return rows, err
		}
	}
	return tx.QueryContext(ctx, text, args...)
}

// elsewhere tells that a statement may not have reached the database: the
// transaction is one of another pool than the statement.
func elsewhere(err error) bool {
	_, reached := sqliteCode(err)
	return !reached && !isTxDone(err) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

func (s *statements) close() error {
	s.mu.Lock()
	byText := s.byText
	s.byText = nil
	s.mu.Unlock()
	var errs []error
	for _, stmt := range byText {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(errs...)
}
