package rows_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

// kept runs a keeper that watches the pulse until the test ends.
func kept(t *testing.T, s *spy, p *rows.Pulse, log *lines) *rows.Keeper {
	t.Helper()
	k := rows.NewKeeper(s, storage.Instance{Box: storage.Outbox, Version: "v1", Lease: lease}, logTo(log))
	if p != nil {
		k.Share(p)
	}
	if err := k.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = k.Leave(context.WithoutCancel(ctx))
	})
	return k
}

// enter begins a call that may take so long.
func enter(t *testing.T, p *rows.Pulse, d time.Duration) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return p.Enter(ctx, "a call")
}

// TestACallPastItsLimitByALeaseEndsTheTenure, of all keepers that share the
// pulse; they join again when it has returned.
func TestACallPastItsLimitByALeaseEndsTheTenure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		first := kept(t, newSpy(), nil, log)
		second := kept(t, newSpy(), first.Pulse(), log)
		old := []*rows.Tenure{first.Current(), second.Current()}
		leave := enter(t, first.Pulse(), 10*time.Second)
		<-time.After(10*time.Second + lease - time.Second)
		for _, tenure := range old {
			if tenure.Over() {
				t.Error("given up too early")
			}
		}
		<-time.After(lease)
		for _, tenure := range old {
			if !tenure.Over() || context.Cause(tenure.Context()) != rows.ErrLeaseLost { //nolint:errorlint // the cause itself
				t.Errorf("not given up: %v", context.Cause(tenure.Context()))
			}
		}
		<-time.After(10 * lease)
		if first.Current() != nil || second.Current() != nil {
			t.Error("joined again while the call hangs")
		}
		if s, ok := first.Pulse().Stuck(); !ok || s.What != "a call" {
			t.Errorf("stuck: %v, %v", s, ok)
		}
		leave()
		<-time.After(lease)
		if first.Current() == nil || second.Current() == nil {
			t.Error("not joined again after the call has returned")
		}
		if _, ok := first.Pulse().Stuck(); ok {
			t.Error("still stuck")
		}
	})
}

// TestOneOfManyThatHangsIsLeftToOthersOnce: for a lease; then the others go on.
func TestOneOfManyThatHangsIsLeftToOthersOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		k := kept(t, s, nil, &lines{})
		k.Pulse().Many = 2
		first := k.Current()
		one := k.Pulse().EnterOne(10*time.Second, "one")
		<-time.After(10*time.Second + 4*lease)
		second := k.Current()
		if second == nil || second == first {
			t.Fatal("not joined again with one of two that hangs")
		}
		<-time.After(10 * lease)
		if k.Current() != second {
			t.Error("the same call ended another tenure")
		}
		two := k.Pulse().EnterOne(10*time.Second, "two")
		<-time.After(10*time.Second + 10*lease)
		if k.Current() != nil {
			t.Error("joined though both hang")
		}
		one()
		<-time.After(lease)
		if k.Current() == nil {
			t.Error("not joined though one has returned")
		}
		two()
	})
}

// TestAProcessThatWasFrozenIsNotStuck: all its calls are late, and return.
func TestAProcessThatWasFrozenIsNotStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		s.onBeat = func(context.Context) error {
			<-time.After(time.Hour) // the keeper is frozen as all else is
			return nil
		}
		k := kept(t, s, nil, &lines{})
		leave := enter(t, k.Pulse(), 10*time.Second)
		<-time.After(lease/3 + time.Hour + lease/3)
		if s, ok := k.Pulse().Stuck(); ok {
			t.Errorf("stuck: %v", s)
		}
		leave()
	})
}
