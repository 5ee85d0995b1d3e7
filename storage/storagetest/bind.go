package storagetest

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/capbus/gocap/storage"
)

func bindCases() []testCase {
	return []testCase{
		{"bind/value", "Value is what application code works with, and what Bind accepts.", bindValue},
		{"bind/nil", "A tx it cannot use is refused: ErrNoTx (nil, typed nil, a handle outside a transaction).", bindNil},
		{"bind/foreign", "A tx it cannot use is refused: ErrNoTx, ErrTxDone, or a *TxTypeError.", bindForeign},
		{"bind/ended", "A tx it cannot use is refused: ErrTxDone: the transaction has ended.", bindEnded},
		{"bind/end", "OnEnd: f is called once soon after the transaction has ended; Ended: whether it has ended (committed or rolled back).", bindEnd},
	}
}

func bindValue(e *env) {
	m := e.join(storage.Outbox)
	rec, undone := e.message(m), e.message(m)
	for _, step := range []struct {
		rec    *storage.Record
		finish func(storage.Tx) error
	}{{rec, storage.Tx.Commit}, {undone, storage.Tx.Rollback}} {
		tx := e.begin()
		w, err := e.store.Bind(tx.Value())
		e.must(err, "bind %T", tx.Value())
		e.must(w.Append(e.op(), step.rec), "append through the bound writer")
		e.must(step.finish(tx), "end")
	}
	e.wantRows("after a commit and a rollback of the bound transactions", e.due(m, allOf("", "")), rec)
}

func bindNil(e *env) {
	tx := e.begin()
	values := []any{nil}
	if t := reflect.TypeOf(tx.Value()); t.Kind() == reflect.Pointer {
		values = append(values, reflect.Zero(t).Interface())
	}
	for _, v := range values {
		if w, err := e.store.Bind(v); !errors.Is(err, storage.ErrNoTx) || w != nil {
			e.Errorf("Bind(%T nil) = %v, %v, want ErrNoTx", v, w, err)
		}
	}
}

func bindForeign(e *env) {
	type notATransaction struct{ Name string }
	for _, v := range []any{42, "tx", notATransaction{}, &notATransaction{}, e.store, context.CancelFunc(func() {})} {
		_, err := e.store.Bind(v)
		var wrong *storage.TxTypeError
		if !errors.As(err, &wrong) {
			e.Errorf("Bind(%T): %v, want a *TxTypeError", v, err)
			continue
		}
		if len(wrong.Accepted) == 0 || wrong.Got == nil || !strings.Contains(err.Error(), reflect.TypeOf(v).String()) {
			e.Errorf("Bind(%T): %q does not say what was given and what is accepted", v, err)
		}
	}
}

func bindEnded(e *env) {
	for name, finish := range map[string]func(storage.Tx) error{"committed": storage.Tx.Commit, "rolled back": storage.Tx.Rollback} {
		tx := e.begin()
		value := tx.Value()
		early, err := e.store.Bind(value)
		e.must(err, "bind")
		e.must(finish(tx), "end")
		if err := early.Append(e.op(), e.message(nil)); !errors.Is(err, storage.ErrTxDone) {
			e.Errorf("Append to a %s transaction: %v, want ErrTxDone", name, err)
		}
		late, err := e.store.Bind(value)
		if err == nil { // it may not be seen without I/O
			err = late.Append(e.op(), e.message(nil))
		}
		if !errors.Is(err, storage.ErrTxDone) {
			e.Errorf("Bind of a %s transaction: %v, want ErrTxDone", name, err)
		}
	}
}

func bindEnd(e *env) {
	for _, commit := range []bool{true, false} {
		tx := e.begin()
		w, err := e.store.Bind(tx.Value())
		e.must(err, "bind")
		e.must(w.Append(e.op(), e.message(nil)), "append")
		var calls, told atomic.Int32
		if n, ok := w.(storage.EndNotifier); ok {
			n.OnEnd(func(committed bool) {
				calls.Add(1)
				if committed == commit {
					told.Add(1)
				}
			})
			again, err := e.store.Bind(tx.Value())
			e.must(err, "bind again")
			if n.TxValues() == nil || n.TxValues() != again.(storage.EndNotifier).TxValues() {
				e.Errorf("writers of one transaction have different TxValues")
			}
		}
		if calls.Load() > 0 || ended(w) {
			e.Errorf("the transaction is said to have ended before it has")
		}
		if commit {
			e.must(tx.Commit(), "commit")
		}
		e.must(tx.Rollback(), "rollback")
		if _, ok := w.(storage.EndNotifier); ok {
			e.eventually("OnEnd is called", func() bool { return calls.Load() > 0 })
			if calls.Load() != 1 || told.Load() != 1 {
				e.Errorf("OnEnd was called %d times, %d times with committed %t", calls.Load(), told.Load(), commit)
			}
		}
		if _, ok := w.(storage.EndProber); ok {
			e.eventually("Ended reports true", func() bool { return ended(w) })
		}
	}
}

func ended(w storage.Writer) bool {
	p, ok := w.(storage.EndProber)
	return ok && p.Ended()
}
