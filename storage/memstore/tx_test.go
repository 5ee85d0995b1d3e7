package memstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
)

func begin(t *testing.T, s *memstore.Store) *memstore.Tx {
	t.Helper()
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx.Value().(*memstore.Tx)
}

// Both have appended before either has committed.
func TestCommitFindsADuplicate(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	rec := message(0)
	rec.GivenID = true
	first, second := begin(t, s), begin(t, s)
	if err := errors.Join(first.Append(t.Context(), rec), second.Append(t.Context(), message(0), rec)); err != nil {
		t.Fatal(err)
	}
	told := 0
	second.OnEnd(func(committed bool) {
		told++
		if committed {
			t.Error("told of a commit")
		}
	})
	if err := first.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := second.Commit(); !errors.Is(err, storage.ErrDuplicate) {
		t.Errorf("second commit: %v, want ErrDuplicate", err)
	}
	if n := len(s.Records(storage.Outbox)); n != 1 || told != 1 {
		t.Errorf("%d rows, told %d times", n, told)
	}
}

func accepted(t *testing.T, m storage.Member) *storage.Record {
	t.Helper()
	rec := message(0)
	rec.Group, rec.Subscriber, rec.MessageID = "g", "s", rec.ID.String()
	if fresh, err := m.Accept(t.Context(), rec); err != nil || len(fresh) != 1 {
		t.Fatalf("accept: %v, %v", fresh, err)
	}
	return rec
}

// The row is lost between Settle and Commit.
func TestCommitFindsALostRow(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	done := func(rec *storage.Record) storage.Outcome {
		return storage.Outcome{ID: rec.ID, Kind: storage.Succeed, After: time.Hour}
	}
	for name, lose := range map[string]func(m storage.Member, rec *storage.Record) error{
		"another owner": func(m storage.Member, rec *storage.Record) error {
			err := m.Leave(t.Context())
			_, err2 := join(t, s, storage.Inbox).TakeOver(t.Context(), storage.Query{IDs: []storage.ID{rec.ID}})
			return errors.Join(err, err2)
		},
		"final": func(m storage.Member, rec *storage.Record) error {
			_, err := m.Settle(t.Context(), done(rec))
			return err
		},
	} {
		m := join(t, s, storage.Inbox)
		rec, msg := accepted(t, m), message(0)
		tx := begin(t, s)
		if err := errors.Join(tx.Append(t.Context(), msg), tx.Settle(t.Context(), m, done(rec)), lose(m, rec)); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); !errors.Is(err, storage.ErrLost) {
			t.Errorf("%s: commit: %v, want ErrLost", name, err)
		}
		if n := len(s.Records(storage.Outbox)); n != 0 {
			t.Errorf("%s: %d rows were published", name, n)
		}
	}
}

func TestSettleOnceInATransaction(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	m := join(t, s, storage.Inbox)
	rec := accepted(t, m)
	tx := begin(t, s)
	o := storage.Outcome{ID: rec.ID, Kind: storage.Retry}
	if err := errors.Join(tx.Settle(t.Context(), m, o), tx.Settle(t.Context(), m, o)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); !errors.Is(err, storage.ErrLost) {
		t.Errorf("commit of two outcomes of one row: %v, want ErrLost", err)
	}
}

// After ErrLost the transaction cannot be committed by mistake.
func TestNoCommitAfterALoss(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	m := join(t, s, storage.Inbox)
	tx := begin(t, s)
	if err := tx.Append(t.Context(), message(0)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Settle(t.Context(), m, storage.Outcome{Kind: storage.Succeed}); !errors.Is(err, storage.ErrLost) {
		t.Errorf("settle of an unknown row: %v, want ErrLost", err)
	}
	if err := tx.Append(t.Context(), message(0)); !errors.Is(err, storage.ErrTxDone) {
		t.Errorf("append: %v, want ErrTxDone", err)
	}
	if err := tx.Commit(); !errors.Is(err, storage.ErrTxDone) {
		t.Errorf("commit: %v, want ErrTxDone", err)
	}
	if n := len(s.Records(storage.Outbox)); n != 0 {
		t.Errorf("%d rows were published", n)
	}
}

func TestBindRefusesWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	s, other := memstore.New(memstore.Config{}), memstore.New(memstore.Config{})
	var wrong *storage.TxTypeError
	if _, err := s.Bind(begin(t, other)); !errors.As(err, &wrong) || wrong.Hint == "" {
		t.Errorf("a transaction of another store: %v", err)
	}
	if _, err := s.Bind(&memstore.Tx{}); !errors.Is(err, storage.ErrNoTx) {
		t.Errorf("a transaction that has not begun: %v, want ErrNoTx", err)
	}
	if _, err := s.Bind(func() {}); !errors.As(err, &wrong) {
		t.Errorf("a function: %v, want a *TxTypeError", err)
	}
	for _, v := range []any{(*int)(nil), (func())(nil), map[string]int(nil), []int(nil)} {
		if _, err := s.Bind(v); !errors.Is(err, storage.ErrNoTx) {
			t.Errorf("%T nil: %v, want ErrNoTx", v, err)
		}
	}
}

func TestOnEndAfterTheEndIsCalledAtOnce(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	for _, commit := range []bool{true, false} {
		tx := begin(t, s)
		if commit {
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		} else if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		calls := 0
		tx.OnEnd(func(committed bool) {
			calls++
			if committed != commit {
				t.Errorf("told committed %t, want %t", committed, commit)
			}
		})
		if calls != 1 {
			t.Errorf("called %d times", calls)
		}
	}
}

// f may use the store: no lock is held when it is called.
func TestOnEndMayUseTheStore(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Config{})
	tx := begin(t, s)
	rec := message(0)
	if err := tx.Append(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	seen := 0
	tx.OnEnd(func(bool) { seen = len(s.Records(storage.Outbox)) })
	if err := tx.Commit(); err != nil || seen != 1 {
		t.Errorf("commit: %v, rows seen when told: %d", err, seen)
	}
}
