// Package trackertest is the conformance suite of idempotency.Tracker. The test
// of a tracker is
//
//	func TestConformance(t *testing.T) {
//		trackertest.Run(t, func(tb testing.TB) idempotency.Tracker { return open(tb) })
//	}
//
// Every case quotes the sentence of the contract that it checks, and prints it
// when it fails.
package trackertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/capbus/gocap/idempotency"
)

// Opener returns a tracker that is ready to be used. It may be the same each
// time: every case has keys of its own. It cleans up by tb.Cleanup.
type Opener func(tb testing.TB) idempotency.Tracker

// Option changes how the suite runs.
type Option func(*config)

type config struct {
	patience time.Duration // for what must happen in the end
	moment   time.Duration // in which a call that does not wait has returned
}

// WithPatience sets how long a case waits for what must happen in the end, and
// for a single call. Defaults to 30 s.
func WithPatience(d time.Duration) Option { return func(c *config) { c.patience = d } }

// Run runs the suite, a subtest for each case, in parallel.
func Run(t *testing.T, open Opener, opts ...Option) {
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
	cfg := config{patience: 30 * time.Second, moment: 200 * time.Millisecond}
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
	return append(append(basicCases(), failureCases()...), togetherCases()...)
}

func (c testCase) check(tb testing.TB, open Opener, cfg config) {
	tb.Helper()
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the contract: %s", c.why)
		}
	})
	c.run(&env{TB: tb, tracker: open(tb), cfg: cfg, prefix: rand.Text() + " "})
}

// env is what a case works with.
type env struct {
	testing.TB

	tracker idempotency.Tracker
	cfg     config
	prefix  string
}

var errNo = errors.New("no")

// key makes a key of this case's own.
func (e *env) key(name string) string { return e.prefix + name }

// op returns a context for the calls of a case.
func (e *env) op() context.Context {
	ctx, cancel := context.WithTimeout(e.Context(), e.cfg.patience)
	e.Cleanup(cancel)
	return ctx
}

// once calls Once with an fn that returns answer, and counts whether it ran.
func (e *env) once(key string, answer error) (runs int, err error) {
	err = e.tracker.Once(e.op(), key, func(context.Context) error {
		runs++
		return answer
	})
	return runs, err
}

// wantOnce ends the case unless Once runs fn as often as wanted and returns nil.
func (e *env) wantOnce(key string, want int) {
	e.Helper()
	if runs, err := e.once(key, nil); runs != want || err != nil {
		e.Fatalf("Once(%s): ran %d times, error %v; want %d, and none", short(key), runs, err, want)
	}
}

// wantDone ends the case unless HasProcessed answers as wanted.
func (e *env) wantDone(key string, want bool) {
	e.Helper()
	if done, err := e.tracker.HasProcessed(e.op(), key); done != want || err != nil {
		e.Fatalf("HasProcessed(%s) is %v, error %v; want %v", short(key), done, err, want)
	}
}

func short(key string) string {
	if len(key) > 60 {
		return fmt.Sprintf("%q… (%d bytes)", key[:60], len(key))
	}
	return fmt.Sprintf("%q", key)
}
