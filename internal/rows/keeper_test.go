package rows_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

const lease = 15 * time.Second

var errAway = errors.New("database is away")

// keep joins and runs a keeper until the test ends.
func keep(t *testing.T, s *spy) *rows.Keeper {
	t.Helper()
	k := newKeeper(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := k.Leave(context.WithoutCancel(ctx)); err != nil && s.onLeave == nil {
			t.Error(err)
		}
	})
	return k
}

func newKeeper(t *testing.T, s *spy) *rows.Keeper {
	t.Helper()
	k := rows.NewKeeper(s, storage.Instance{Box: storage.Outbox, Version: "v1", Lease: lease}, logTo(&lines{}))
	if err := k.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k
}

func TestLeaseIsRenewedEveryThirdOfIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, begun := newSpy(), time.Now()
		k := keep(t, s)
		number := k.Current().Number()
		<-time.After(10*lease + time.Second)
		s.note(func() {
			if len(s.beats) != 30 {
				t.Errorf("%d beats in 10 leases, want 30", len(s.beats))
			}
			for i, at := range s.beats {
				if want := time.Duration(i+1) * lease / 3; at.Sub(begun) != want {
					t.Errorf("beat %d after %s, want %s", i, at.Sub(begun), want)
				}
			}
		})
		if c := k.Current(); c == nil || c.Number() != number {
			t.Error("the number has changed though every beat was written")
		}
	})
}

// TestLeaseThatCannotBeRenewedIsLost: the work ends within the lease, counted
// from before the last beat that was written; the old number is left, so that
// nothing is charged, and a new one joins.
func TestLeaseThatCannotBeRenewedIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, begun := newSpy(), time.Now()
		const slow = 2 * time.Second
		s.onBeat = func(context.Context) error {
			if time.Since(begun) > lease/3 {
				return errAway
			}
			<-time.After(slow) // the only one that is written, at 5 s, takes until 7 s
			return nil
		}
		k := keep(t, s)
		old := k.Current()
		<-old.Context().Done()
		if got, want := time.Since(begun), lease/3+lease; got != want {
			t.Errorf("the tenure ended after %s, want %s: from before the beat was sent", got, want)
		}
		if cause := context.Cause(old.Context()); !errors.Is(cause, rows.ErrLeaseLost) {
			t.Errorf("its cause is %v", cause)
		}
		fresh, err := k.Wait(t.Context())
		if err != nil || fresh.Number() == old.Number() {
			t.Fatalf("number %d after %d, %v", fresh.Number(), old.Number(), err)
		}
		s.note(func() {
			if len(s.left) != 1 || s.left[0] != old.Number() {
				t.Errorf("numbers left: %v, want %d", s.left, old.Number())
			}
		})
		if got := time.Since(begun); got > lease/3+lease+time.Second {
			t.Errorf("joined again after %s", got)
		}
	})
}

func TestNumberThatWasDeclaredDeadIsGivenUpAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, begun := newSpy(), time.Now()
		k := keep(t, s)
		old := k.Current()
		if err := old.Member.(*spyMember).Member.Leave(t.Context()); err != nil { //nolint:forcetypeassert // every member here
			t.Fatal(err)
		}
		<-old.Context().Done()
		if got := time.Since(begun); got != lease/3 || !errors.Is(context.Cause(old.Context()), rows.ErrLeaseLost) {
			t.Errorf("over after %s by %v; the first beat, after %s, was ErrLost", got, context.Cause(old.Context()), lease/3)
		}
		if fresh, err := k.Wait(t.Context()); err != nil || fresh.Number() == old.Number() || time.Since(begun) != lease/3 {
			t.Errorf("new number %v after %s", err, time.Since(begun))
		}
	})
}

// TestAShortOutageCostsNothing: a beat is tried again well before the lease
// ends.
func TestAShortOutageCostsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, begun := newSpy(), time.Now()
		s.onBeat = func(context.Context) error {
			if d := time.Since(begun); d < 2*lease/3 {
				return errAway
			}
			return nil
		}
		k := keep(t, s)
		old := k.Current()
		<-time.After(5 * lease)
		if old.Over() || k.Current() != old {
			t.Error("the lease was lost though the database came back after two thirds of it")
		}
	})
}

// TestCallsThatHangAreBounded: none of the calls keeps the keeper from going on.
func TestCallsThatHangAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, begun := newSpy(), time.Now()
		k := newKeeper(t, s)
		var hung atomic.Bool
		hung.Store(true)
		hangs := func(ctx context.Context) error {
			if hung.Load() {
				return hang(ctx)
			}
			return nil
		}
		s.onBeat, s.onLeave, s.onJoin = hangs, hangs, hangs
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Run(ctx)
		}()
		old := k.Current()
		<-old.Context().Done()
		if got := time.Since(begun); got != lease {
			t.Errorf("the tenure ended after %s, want %s", got, lease)
		}
		<-time.After(10 * lease)
		hung.Store(false)
		if _, err := k.Wait(t.Context()); err != nil || time.Since(begun) > 13*lease {
			t.Errorf("joined after %s, %v", time.Since(begun), err)
		}
		s.note(func() {
			if s.joins > 15 {
				t.Errorf("%d joins while the database hung", s.joins)
			}
		})
		cancel()
		<-done
		if err := k.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestStopEndsAKeeperThatCannotJoin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		k := newKeeper(t, s)
		s.onBeat = func(context.Context) error { return storage.ErrLost }
		s.onJoin = hang
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Run(ctx)
		}()
		<-time.After(lease)
		cancel()
		<-done
		if err := k.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestErrorsOfTheDatabaseAreLoggedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, log := newSpy(), &lines{}
		k := rows.NewKeeper(s, storage.Instance{Box: storage.Outbox, Version: "v1", Lease: lease}, logTo(log))
		if err := k.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		fail := func(context.Context) error { return errAway }
		s.onBeat, s.onJoin, s.onLeave = fail, fail, fail
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		k.Run(ctx)
		if n := log.count(); n < 10 || n > 130 {
			t.Errorf("%d lines in 10 minutes, want some, and at most two in 10 s", n)
		}
	})
}

func TestLeaveEndsTheTenure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		k := newKeeper(t, s)
		old := k.Current()
		if err := k.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !old.Over() || k.Current() != nil {
			t.Error("the tenure goes on after Leave")
		}
		if err := old.Beat(t.Context()); !errors.Is(err, storage.ErrLost) {
			t.Errorf("beat after Leave: %v", err)
		}
		if err := k.Leave(t.Context()); err != nil {
			t.Errorf("second Leave: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := k.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait without a tenure: %v", err)
		}
	})
}

// TestNumberIsGivenUpUntilItIsOfUse: Rest leaves it as a clean stop does, Resume
// joins under a new one.
func TestNumberIsGivenUpUntilItIsOfUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		k := keep(t, s)
		old := k.Current()
		tries := 0
		s.onLeave = func(context.Context) error {
			if tries++; tries == 1 {
				return errAway
			}
			return nil
		}
		k.Rest()
		if k.Current() != nil || !old.Over() {
			t.Error("there is a number after Rest")
		}
		<-time.After(2 * lease)
		s.note(func() {
			if len(s.left) != 1 || s.left[0] != old.Number() || s.joins != 1 {
				t.Errorf("left %v, joins %d; want %d left and no new join", s.left, s.joins, old.Number())
			}
		})
		k.Resume()
		fresh, err := k.Wait(t.Context())
		if err != nil || fresh.Number() == old.Number() {
			t.Fatalf("after Resume: %v", err)
		}
		<-time.After(2 * lease)
		if k.Current() != fresh {
			t.Error("the new number was not kept")
		}
	})
}
