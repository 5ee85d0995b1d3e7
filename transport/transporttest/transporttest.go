// Package transporttest is the conformance suite for transports: an adapter that
// passes it may be used by the engines.
//
//	func TestConformance(t *testing.T) {
//		transporttest.Run(t, func(t *testing.T) transport.Transport { … })
//	}
//
// Each case quotes the sentence of the contract that it checks. What a transport
// does not claim in its Traits is not asked of it. Nothing here sleeps: the
// cases wait for events, and say what did not come when they give up.
package transporttest

import (
	"context"
	"testing"
	"time"

	"github.com/capbus/gocap/transport"
)

// DefaultWait is how long a case waits for one event before it fails.
const DefaultWait = 20 * time.Second

// Suite is the conformance suite with its settings.
type Suite struct {
	// Open returns a transport on an empty broker, or on an empty part of one
	// (an exchange, a prefix of its tables): cases use the same topics. Group
	// names are unique. What it opens it closes with t.Cleanup. Required.
	Open func(t *testing.T) transport.Transport
	// Cut loses every connection of a transport at once, as a network that fails
	// does; it may be connected again when Cut returns, or a little later. Nil:
	// the cases about reconnecting are left out.
	Cut func(t *testing.T, tr transport.Transport)
	// Wait is how long a case waits for one event. Defaults to DefaultWait.
	Wait time.Duration
	// Serial runs the cases one after another: for a transport on which users of one
	// broker hold up each other.
	Serial bool
}

// Run checks the transports that open returns, one a case; see Suite.
func Run(t *testing.T, open func(t *testing.T) transport.Transport) {
	t.Helper()
	Suite{Open: open}.Run(t)
}

// Run runs each case as a subtest, but for those about an ability that
// the transport does not claim.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	if s.Wait == 0 {
		s.Wait = DefaultWait
	}
	first := s.Open(t)
	for _, c := range cases() {
		if c.needs != nil && !c.needs(first) || c.cuts && s.Cut == nil {
			t.Logf("not claimed: %s", c.name)
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if !s.Serial {
				t.Parallel()
			}
			tr := s.Open(t)
			c.check(t, tr, s.Wait, func() { s.Cut(t, tr) })
		})
	}
}

// TB is what a case needs of *testing.T. It is an interface so that the suite's
// own tests can see it reject a broken transport.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(f func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// testCase is one promise.
type testCase struct {
	name  string
	why   string // the contract's sentence
	needs func(transport.Transport) bool
	cuts  bool // needs Suite.Cut
	run   func(e *env)
}

// check runs the case and prints, if it failed, what the contract says.
func (c testCase) check(tb TB, tr transport.Transport, wait time.Duration, cut func()) {
	tb.Helper()
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the contract: %s", c.why)
		}
	})
	e := newEnv(tb, tr, wait)
	e.cut = cut
	c.run(e)
}

// cases lists them by topic; each topic has its file.
func cases() []testCase {
	var all []testCase
	for _, topic := range [][]testCase{
		basicCases(),
		groupCases(),
		wildcardCases(),
		outcomeCases(),
		redeliveryCases(),
		windowCases(),
		stopCases(),
		contentCases(),
		declareCases(),
		reconnectCases(),
		retryCases(),
		orderedCases(),
	} {
		all = append(all, topic...)
	}
	return all
}

func claimsRouting(tr transport.Transport) bool   { return tr.Traits().Routing }
func claimsWildcards(tr transport.Transport) bool { return tr.Traits().Wildcards }
func claimsRetry(tr transport.Transport) bool     { return tr.Traits().BrokerRetry }
func claimsSingle(tr transport.Transport) bool    { return tr.Traits().SingleActive }
func claimsOrder(tr transport.Transport) bool     { return tr.Traits().Ordered }

func claimsQueue(tr transport.Transport) bool { return !tr.Traits().NoQueue }

// claimsInFlight is for cases that leave n deliveries of a topic unanswered.
func claimsInFlight(n int) func(transport.Transport) bool {
	return func(tr transport.Transport) bool {
		most := tr.Traits().InFlight
		return most == 0 || most >= n
	}
}

// claims is for cases that need several abilities.
func claims(all ...func(transport.Transport) bool) func(transport.Transport) bool {
	return func(tr transport.Transport) bool {
		for _, has := range all {
			if !has(tr) {
				return false
			}
		}
		return true
	}
}
