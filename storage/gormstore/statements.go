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

// pool is what statements are prepared and run on.
type pool interface {
	querier
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// statements runs texts on a pool as prepared statements, where the dialect has
// use for them.
type statements struct {
	db       pool
	answered func(error) bool // by the database itself
	keep     bool

	mu     sync.RWMutex
	byText map[string]*sql.Stmt // nil once closed
}

func newStatements(db pool, d dialect) *statements {
	return &statements{db: db, keep: d.prepares(), answered: d.answered, byText: make(map[string]*sql.Stmt)}
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
	if !s.keep {
		return nil, nil
	}
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

// on returns a transaction whose statements run prepared where they have been;
// it must have QueryContext when rows are asked for. Only of a plain transaction
// it is known what it does with a statement.
func (s *statements) on(tx storage.Execer) conn {
	own, _ := tx.(*sql.Tx)
	return &preparedTx{tx: tx, own: own, from: s}
}

type preparedTx struct {
	tx   storage.Execer
	own  *sql.Tx // nil: it is another kind
	from *statements
}

func (t *preparedTx) stmt(ctx context.Context, text string) *sql.Stmt {
	if t.own == nil || !t.from.keep {
		return nil
	}
	t.from.mu.RLock()
	stmt := t.from.byText[text]
	t.from.mu.RUnlock()
	if stmt == nil {
		return nil
	}
	return t.own.StmtContext(ctx, stmt)
}

// ExecContext is as that of *sql.Tx.
func (t *preparedTx) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	if stmt := t.stmt(ctx, text); stmt != nil { //nolint:sqlclosecheck // the end of the transaction closes it
		res, err := stmt.ExecContext(ctx, args...)
		if err == nil || !t.from.elsewhere(err) {
			return res, err
		}
	}
	return t.tx.ExecContext(ctx, text, args...)
}

// QueryContext is as that of *sql.Tx.
func (t *preparedTx) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	if stmt := t.stmt(ctx, text); stmt != nil { //nolint:sqlclosecheck // as in ExecContext
		rows, err := stmt.QueryContext(ctx, args...)
		if err == nil || !t.from.elsewhere(err) {
			return rows, err
		}
	}
	q, ok := t.tx.(querier)
	if !ok {
		return nil, errors.New("the transaction has no QueryContext")
	}
	return q.QueryContext(ctx, text, args...)
}

// elsewhere tells that a statement may not have reached the database: the
// transaction is one of another pool than the statement.
func (s *statements) elsewhere(err error) bool {
	return !s.answered(err) && !isTxDone(err) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// preparing is a transaction that runs nothing: it prepares the texts.
type preparing struct{ to *statements }

var errPreparing = errors.New("nothing was run")

func (p preparing) ExecContext(ctx context.Context, text string, _ ...any) (sql.Result, error) {
	_, err := p.to.prepared(ctx, text) //nolint:sqlclosecheck // close does
	return nil, errors.Join(errPreparing, err)
}

func (p preparing) QueryContext(ctx context.Context, text string, _ ...any) (*sql.Rows, error) {
	_, err := p.to.prepared(ctx, text) //nolint:sqlclosecheck // close does
	return nil, errors.Join(errPreparing, err)
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
