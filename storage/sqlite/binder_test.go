package sqlite_test

import (
	"database/sql"
	"sync"
	"testing"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/sqlite"
)

// ownTx is a transaction of a library that only its binder knows.
type ownTx struct {
	tx  *sql.Tx
	how string
}

type (
	telling struct {
		*sql.Tx
		onEnd  *func(bool)
		values *sync.Map
	}
	asked struct{ *sql.Tx }
)

func (e telling) OnEnd(f func(bool))  { *e.onEnd = f }
func (e telling) TxValues() *sync.Map { return e.values }
func (asked) Ended() bool             { return true }
func (asked) TxKey() any              { return "key" }

// TestWhatABinderFoundTellsOfItsEnd through the Writer, in its own way.
func TestWhatABinderFoundTellsOfItsEnd(t *testing.T) {
	t.Parallel()
	var f func(bool)
	var values sync.Map
	s := newStore(t, func(c *sqlite.Config) {
		c.Binders = []storage.TxBinder{func(tx any) (storage.Execer, bool, error) {
			own, ok := tx.(ownTx)
			switch {
			case !ok:
				return nil, false, nil
			case own.how == "tells":
				return telling{own.tx, &f, &values}, true, nil
			default:
				return asked{own.tx}, true, nil
			}
		}}
	})
	join(t, s, storage.Outbox)
	db, err := s.DB().DB()
	must(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()

	w, err := s.Bind(ownTx{tx, "tells"})
	must(t, err)
	must(t, w.Append(t.Context(), outgoing(0)))
	n, ok := w.(storage.EndNotifier)
	if !ok {
		t.Fatal("the Writer does not tell of the end")
	}
	told := 0
	if n.TxValues() != &values {
		t.Error("the values are not those of the transaction")
	}
	n.OnEnd(func(bool) { told++ })
	if f == nil {
		t.Fatal("what the binder found was not asked to tell")
	}
	if f(true); told != 1 {
		t.Errorf("told %d times", told)
	}

	w, err = s.Bind(ownTx{tx, "is asked"})
	must(t, err)
	must(t, w.Append(t.Context(), outgoing(0)))
	if p, ok := w.(storage.EndProber); !ok || !p.Ended() || p.TxKey() != "key" {
		t.Error("the Writer does not ask what the binder found")
	}
	if _, ok := w.(storage.EndNotifier); ok {
		t.Error("it says that it can tell, too")
	}
}
