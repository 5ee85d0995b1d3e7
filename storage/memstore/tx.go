package memstore

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"github.com/capbus/gocap/storage"
)

// Tx is a transaction of a [Store]. What is appended and settled in it happens
// at Commit. Like any transaction it is used by one goroutine at a time.
type Tx struct {
	s    *Store
	ctx  context.Context //nolint:containedctx // bounds the life of the transaction, as in database/sql
	stop func() bool

	// Guarded by s.mu.
	rows      []*row
	ids       map[storage.ID]bool
	settles   []settlement
	lost      bool // a Settle has failed: it can only be rolled back
	done      bool
	committed bool
	onEnd     []func(committed bool)
	values    sync.Map
}

type settlement struct {
	m *member
	o storage.Outcome
}

var (
	_ storage.Tx          = (*Tx)(nil)
	_ storage.EndNotifier = (*Tx)(nil)
)

// Bind implements storage.Storage: it accepts a *Tx of this store.
func (s *Store) Bind(tx any) (storage.Writer, error) {
	refused := &storage.TxTypeError{Got: tx, Accepted: []string{"*memstore.Tx"}}
	t, ok := tx.(*Tx)
	switch {
	case isNil(tx), ok && t.s == nil:
		return nil, fmt.Errorf("memstore: bind: %w", storage.ErrNoTx)
	case !ok:
		return nil, refused
	case t.s != s:
		refused.Hint = "it is of another store"
		return nil, refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := t.usable(t.ctx); err != nil {
		return nil, fmt.Errorf("memstore: bind: %w", err)
	}
	return t, nil
}

// isNil says whether there is no value, or a nil pointer, in v.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan:
		return r.IsNil()
	default:
		return false
	}
}

// Begin implements storage.Storage.
func (s *Store) Begin(ctx context.Context) (storage.Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t := &Tx{s: s, ctx: ctx, ids: map[storage.ID]bool{}}
	t.stop = context.AfterFunc(ctx, t.rollback)
	return t, nil
}

// Value implements storage.Tx; it returns t.
func (t *Tx) Value() any { return t }

// usable says why nothing can be done in the transaction, or with ctx.
func (t *Tx) usable(ctx context.Context) error {
	if t.done || t.lost {
		return storage.ErrTxDone
	}
	if t.ctx.Err() != nil {
		return fmt.Errorf("%w: %w", storage.ErrTxDone, context.Cause(t.ctx))
	}
	return ctx.Err()
}

// Append implements storage.Writer. Ids are compared with those of committed
// rows and of this transaction.
func (t *Tx) Append(ctx context.Context, recs ...*storage.Record) error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if err := t.usable(ctx); err != nil {
		return fmt.Errorf("memstore: append: %w", err)
	}
	now := t.s.now()
	ids := make(map[storage.ID]bool, len(recs))
	for _, rec := range recs {
		if t.s.outbox.rows[rec.ID] != nil || t.ids[rec.ID] || ids[rec.ID] {
			return fmt.Errorf("memstore: append %v: %w", rec.ID, storage.ErrDuplicate)
		}
		ids[rec.ID] = true
	}
	for _, rec := range recs {
		r := t.s.outbox.newRow(rec, now)
		if rec.Delay > 0 {
			r.Status, r.due = storage.Delayed, plus(now, rec.Delay)
		} else if !rec.DueAt.IsZero() {
			r.Status, r.due = storage.Delayed, t.s.moment(rec.DueAt)
		}
		t.rows = append(t.rows, r)
		t.ids[r.ID] = true
	}
	return nil
}

// Settle implements storage.Tx. After an error the transaction can only be
// rolled back.
func (t *Tx) Settle(ctx context.Context, m storage.Member, o storage.Outcome) error {
	if err := checkOutcome(o); err != nil {
		return err
	}
	own, ok := m.(*member)
	if !ok || own.s != t.s || !own.t.inbox {
		return fmt.Errorf("memstore: settle %v: %T is no member of the inbox of this store", o.ID, m)
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if err := t.usable(ctx); err != nil {
		return fmt.Errorf("memstore: settle %v: %w", o.ID, err)
	}
	if !own.owns(o) {
		t.lost = true
		return fmt.Errorf("memstore: settle %v: %w", o.ID, storage.ErrLost)
	}
	t.settles = append(t.settles, settlement{own, o})
	return nil
}

// Commit implements storage.Tx. Two things are looked at once more, because
// nothing is locked before; the transaction is then rolled back as a whole:
// storage.ErrDuplicate, when another transaction has committed a record of the
// same id since Append; storage.ErrLost, when the settled row has got another
// owner, or has become final, since Settle.
func (t *Tx) Commit() error {
	t.stop()
	t.s.mu.Lock()
	err := t.conflict()
	if err == nil {
		t.apply()
	}
	told := t.end(err == nil)
	t.s.mu.Unlock()
	told()
	if err != nil {
		return fmt.Errorf("memstore: commit: %w", err)
	}
	return nil
}

func (t *Tx) apply() {
	now := t.s.now()
	for _, r := range t.rows {
		t.s.outbox.insert(r)
	}
	for _, st := range t.settles {
		st.m.settle(st.o, now)
	}
}

func (t *Tx) conflict() error {
	if err := t.usable(t.ctx); err != nil {
		return err
	}
	for _, r := range t.rows {
		if t.s.outbox.rows[r.ID] != nil {
			return fmt.Errorf("%v: %w", r.ID, storage.ErrDuplicate)
		}
	}
	settled := map[storage.ID]bool{}
	for _, st := range t.settles {
		if !st.m.owns(st.o) || settled[st.o.ID] {
			return fmt.Errorf("%v: %w", st.o.ID, storage.ErrLost)
		}
		settled[st.o.ID] = true
	}
	return nil
}

// Rollback implements storage.Tx.
func (t *Tx) Rollback() error {
	t.stop()
	t.rollback()
	return nil
}

func (t *Tx) rollback() {
	t.s.mu.Lock()
	told := t.end(false)
	t.s.mu.Unlock()
	told()
}

// OnEnd implements storage.EndNotifier. f is called by the goroutine that ends
// the transaction, or by this one when it has ended already.
func (t *Tx) OnEnd(f func(committed bool)) {
	t.s.mu.Lock()
	if !t.done {
		t.onEnd = append(t.onEnd, f)
		t.s.mu.Unlock()
		return
	}
	committed := t.committed
	t.s.mu.Unlock()
	f(committed)
}

// TxValues implements storage.EndNotifier.
func (t *Tx) TxValues() *sync.Map { return &t.values }

// end marks the transaction as ended, the first time it is called, with s.mu
// held. What it returns is called without, and tells those who asked.
func (t *Tx) end(committed bool) func() {
	if t.done {
		return func() {}
	}
	t.done, t.committed = true, committed
	told := t.onEnd
	t.rows, t.ids, t.settles, t.onEnd = nil, nil, nil, nil
	return func() {
		for _, f := range told {
			f(committed)
		}
	}
}
