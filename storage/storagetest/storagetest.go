// Package storagetest is the conformance suite of the storage contract: what
// an adapter must do to be used by the engines. An adapter's test is
//
//	func TestConformance(t *testing.T) {
//		storagetest.Run(t, func(tb testing.TB) storage.Storage { return open(tb) })
//	}
//
// Every case quotes the sentence of the contract that it checks, and prints it
// when it fails.
package storagetest

import (
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
)

// Opener returns a storage that is ready to be used: its tables are there. It
// is called once a case and may return the same storage each time, because
// every case works under a version of its own. It cleans up by tb.Cleanup.
type Opener func(tb testing.TB) storage.Storage

// Option changes how the suite runs.
type Option func(*config)

type config struct {
	lease    time.Duration // of members that are to die
	patience time.Duration // for what must happen in the end
}

// WithLease sets the lease of the members that the suite lets die. Defaults to
// 100 ms.
func WithLease(d time.Duration) Option { return func(c *config) { c.lease = d } }

// WithPatience sets how long a case waits for what must happen in the end, and
// for a single call. Defaults to 20 s.
func WithPatience(d time.Duration) Option { return func(c *config) { c.patience = d } }

// Run runs the suite, a subtest for each case, in parallel.
func Run(t *testing.T, open func(t testing.TB) storage.Storage, opts ...Option) {
	t.Helper()
	cfg := configOf(opts)
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t, open, cfg)
		})
	}
}

func configOf(opts []Option) config {
	cfg := config{lease: 100 * time.Millisecond, patience: 20 * time.Second}
	for _, o := range opts {
		o(&cfg)
	}
	return cfg
}

// testCase is one promise of the contract.
type testCase struct {
	name string
	why  string // the sentence of the contract
	run  func(e *env)
}

func cases() []testCase {
	var all []testCase
	for _, area := range [][]testCase{
		bindCases(), appendCases(), txCases(), contentCases(), dueCases(), limitCases(),
		takeOverCases(), staleCases(), headCases(), lockCases(), glanceCases(), claimCases(), settleCases(), finalCases(),
		acceptCases(), faultCases(), splitCases(), purgeCases(), memberCases(), inspectCases(),
		inboxTxCases(), raceCases(), operatorCases(), operateCases(),
	} {
		all = append(all, area...)
	}
	return all
}

func (c testCase) check(tb testing.TB, open Opener, cfg config) {
	tb.Helper()
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the contract: %s", c.why)
		}
	})
	c.run(newEnv(tb, open(tb), cfg))
}
