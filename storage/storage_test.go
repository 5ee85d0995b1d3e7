package storage_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/capbus/gocap/storage"
)

func TestTxTypeErrorSaysWhatWasGivenAndWhatIsAccepted(t *testing.T) {
	t.Parallel()
	type secret struct{ Password string }
	for want, err := range map[string]*storage.TxTypeError{
		"int cannot be used as a transaction; accepted: *sql.Tx":                                                    {Got: 1, Accepted: []string{"*sql.Tx"}},
		"string cannot be used as a transaction; accepted: *sql.Tx or *gorm.DB":                                     {Got: "x", Accepted: []string{"*sql.Tx", "*gorm.DB"}},
		"*storage_test.secret cannot be used as a transaction; accepted: *sql.Tx, pgx.Tx or *gorm.DB":               {Got: &secret{"hunter2"}, Accepted: []string{"*sql.Tx", "pgx.Tx", "*gorm.DB"}},
		"bool cannot be used as a transaction; accepted: *sql.Tx (it is a pool: call Begin, and give what it made)": {Got: true, Accepted: []string{"*sql.Tx"}, Hint: "it is a pool: call Begin, and give what it made"},
	} {
		if got := err.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestTxTypeErrorIsFoundWhenWrapped(t *testing.T) {
	t.Parallel()
	var found *storage.TxTypeError
	err := fmt.Errorf("publish: %w", &storage.TxTypeError{Got: 7, Accepted: []string{"*sql.Tx"}})
	if !errors.As(err, &found) || found.Got != 7 {
		t.Errorf("errors.As finds %v", found)
	}
}

func TestTxFromContext(t *testing.T) {
	t.Parallel()
	if _, err := storage.TxFromContext(t.Context()); !errors.Is(err, storage.ErrNoTx) {
		t.Errorf("outside a handler: %v, want ErrNoTx", err)
	}
	broken := errors.New("database away")
	begun := 0
	ctx := storage.ContextWithTx(t.Context(), func() (storage.Tx, error) {
		begun++
		return nil, broken
	})
	if begun != 0 {
		t.Error("the transaction began before it was asked for")
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := storage.TxFromContext(inner); !errors.Is(err, broken) || begun != 1 {
		t.Errorf("inside a handler: %v after %d calls", err, begun)
	}
}
