//go:build !capnofx

package main

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBalances: every way has the right balance, and without one the money is
// gone ten times, so that the deliveries are really repeated.
func TestBalances(t *testing.T) {
	t.Parallel()
	balances, err := run(t.Context(), filepath.Join(t.TempDir(), "books.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range ways(nil) {
		want := opening - amount
		if w.account == "nothing" {
			want = opening - times*amount
		}
		if got := balances[w.account]; got != want {
			t.Errorf("%s: the balance is %d, want %d", w.account, got, want)
		}
	}
}
