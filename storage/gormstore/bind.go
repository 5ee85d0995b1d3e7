package gormstore

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
)

var _ storage.EndProber = (*probedWriter)(nil)

// What a binder found tells of its end itself.
type (
	tellingWriter struct {
		*writer
		storage.EndNotifier
	}
	askedWriter struct {
		*writer
		storage.EndProber
	}
)

// execTx is what every transaction of a SQL library has.
type execTx interface {
	storage.Execer
	gorm.TxCommitter
}

// Bind implements storage.Storage. It accepts a *gorm.DB that is in a
// transaction, *sql.Tx, whatever else has ExecContext, Commit and Rollback, and
// what Config.Binders know. Where a type embeds a *sql.Tx, as *sqlx.Tx and bun.Tx
// do, that one is used: hooks of the type do not see the statement.
func (s *Store) Bind(tx any) (storage.Writer, error) {
	if s.err != nil {
		return nil, s.err
	}
	if isNil(tx) {
		return nil, fmt.Errorf("gormstore: %w: %T(nil) was given", storage.ErrNoTx, tx)
	}
	for _, bind := range s.cfg.Binders {
		e, ok, err := bind(tx)
		if err != nil {
			return nil, fmt.Errorf("gormstore: bind %T: %w", tx, err)
		}
		if ok {
			return s.writerOn(e)
		}
	}
	switch v := tx.(type) {
	case *gorm.DB:
		e, err := gormTx(v)
		if err != nil {
			return nil, err
		}
		return s.writerOn(e)
	case execTx:
		if inner := embedded(reflect.ValueOf(tx)); inner != nil {
			return s.writerOn(inner)
		}
		return s.writerOn(v)
	}
	return nil, &storage.TxTypeError{Got: tx, Accepted: accepted(len(s.cfg.Binders) > 0), Hint: hint(tx)}
}

// embedded finds the *sql.Tx that a type embeds, as those of sqlx and bun do.
// Statements go there, not through a method of the type's own: bun's writes the
// arguments into the text, which then has parameters without values.
func embedded(v reflect.Value) *sql.Tx {
	if tx, ok := v.Interface().(*sql.Tx); ok {
		return tx
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil
	}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Anonymous && f.IsExported() {
			if tx := embedded(v.Field(i)); tx != nil {
				return tx
			}
		}
	}
	return nil
}

func accepted(binders bool) []string {
	a := []string{"*gorm.DB in a transaction", "*sql.Tx", "a type with ExecContext, Commit and Rollback"}
	if binders {
		a = append(a, "what Config.Binders know")
	}
	return a
}

func hint(tx any) string {
	switch tx.(type) {
	case *sql.DB:
		return "it is a pool of connections: begin a transaction with BeginTx"
	case *sql.Conn:
		return "it is a connection: begin a transaction with BeginTx"
	case gorm.DB:
		return "give the pointer"
	}
	return ""
}

// gormTx finds the transaction in a *gorm.DB.
func gormTx(db *gorm.DB) (execTx, error) {
	switch {
	case db.Config == nil || db.Statement == nil:
		return nil, fmt.Errorf("gormstore: %w: the *gorm.DB is not initialised", storage.ErrNoTx)
	case db.Error != nil:
		return nil, fmt.Errorf("gormstore: %w: the *gorm.DB carries an error, so the transaction has failed: %w",
			storage.ErrTxDone, db.Error)
	case db.DryRun:
		return nil, fmt.Errorf("gormstore: %w: the *gorm.DB is in DryRun mode, which writes nothing", storage.ErrNoTx)
	}
	var pool any = db.Statement.ConnPool
	if p, ok := pool.(*gorm.PreparedStmtTX); ok && p != nil {
		// Our statement does not belong into gorm's cache of prepared ones.
		pool = p.Tx
	}
	tx, ok := pool.(execTx)
	if !ok || isNil(pool) {
		return nil, fmt.Errorf("gormstore: %w: the *gorm.DB is not in a transaction; "+
			"use the one that db.Transaction gives to its function, or that db.Begin returns", storage.ErrNoTx)
	}
	return tx, nil
}

// isNil reports nil, and a nil pointer in an interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch rv := reflect.ValueOf(v); rv.Kind() { //nolint:exhaustive // the others are never nil
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice, reflect.Interface:
		return rv.IsNil()
	default:
		return false
	}
}

// writerOn makes the writer, unless the transaction shows that it has ended.
func (s *Store) writerOn(e storage.Execer) (storage.Writer, error) {
	w := &writer{s: s, exec: e}
	switch e := e.(type) {
	case storage.EndNotifier:
		return tellingWriter{w, e}, nil
	case storage.EndProber:
		return askedWriter{w, e}, nil
	}
	p, ok := e.(prober)
	if !ok {
		return w, nil
	}
	pw := &probedWriter{writer: w, tx: p, foreign: new(sql.Stmt)}
	switch pw.state() {
	case txEnded:
		return nil, fmt.Errorf("gormstore: %w (%w)", storage.ErrTxDone, sql.ErrTxDone)
	case txBroken:
		return nil, fmt.Errorf("gormstore: %w: the %T holds none", storage.ErrNoTx, e)
	case txOpen, txUnknown:
	}
	return pw, nil
}

// prober is a transaction that is or holds a *sql.Tx.
type prober interface {
	StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt
}

type txState int

const (
	txOpen    txState = iota
	txUnknown         // an answer that we do not know: the engine looks into the table
	txEnded
	txBroken // it panics: a wrapper around nothing
)

// probedWriter can tell when its transaction has ended.
type probedWriter struct {
	*writer
	tx      prober
	foreign *sql.Stmt
}

// Ended implements storage.EndProber.
func (w *probedWriter) Ended() bool { return w.state() == txEnded }

// TxKey implements storage.EndProber: the transaction itself, where it is a
// pointer. A *gorm.DB has the key of what it holds.
func (w *probedWriter) TxKey() any {
	if reflect.ValueOf(w.tx).Kind() == reflect.Pointer {
		return w.tx
	}
	return w
}

// state asks for a statement of another database. database/sql refuses it
// before it touches the connection, and says first, when it is so, that the
// transaction has ended. A zero Stmt belongs to no database, so to another.
func (w *probedWriter) state() (st txState) {
	defer func() {
		if recover() != nil {
			st = txBroken
		}
	}()
	ctx := context.Background() //nolint:forbidigo // nothing is waited for
	stmt := w.tx.StmtContext(ctx, w.foreign)
	switch err := stmt.Close(); { //nolint:sqlclosecheck // it is closed to be asked
	case err == nil:
		return txUnknown
	case isTxDone(err):
		return txEnded
	default:
		return txOpen
	}
}
