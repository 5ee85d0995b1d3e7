package processor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
)

var errAway = errors.New("database is away")

// TestBacklogIsReadOnce: each look goes on behind the last row, and what is
// larger than the memory waits in the table.
func TestBacklogIsReadOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, window = 8000, 2000
		k := newTaker(t, window, nil)
		k.publish(n, "a")
		k.works(2) // takes 4 s
		begun := time.Now()
		k.run()
		for k.finished("") < n {
			<-time.After(10 * time.Millisecond)
		}
		took, scans, read := time.Since(begun), 0, 0
		for _, l := range k.seen() {
			if l.takeOver {
				continue
			}
			read += l.found
			if l.fromStart() {
				scans++
			}
		}
		if took > 4100*time.Millisecond {
			t.Errorf("the engine waited for rows: %s, want 4s", took)
		}
		if most := int(took/time.Second) + 2; scans > most {
			t.Errorf("%d scans from the start in %s, want at most %d", scans, took, most)
		}
		if most := n + 5*window; read > most {
			t.Errorf("%d rows were read to find %d, want at most %d", read, n, most)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.most > window {
			t.Errorf("%d rows at once, want at most %d", k.most, window)
		}
		for id, times := range k.times {
			if times != 1 {
				t.Fatalf("row %v came %d times", id, times)
			}
		}
	})
}

func TestIdleCostsOneLookAnInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newTaker(t, 2000, nil)
		k.run()
		<-time.After(100*time.Second + 500*time.Millisecond)
		due, over := 0, 0
		for _, l := range k.seen() {
			if l.takeOver {
				over++
			} else {
				due++
			}
		}
		if due > 101 || over > 101 || due < 100 || over < 100 {
			t.Errorf("in 100 s %d looks for own rows and %d for others', want one a second of each", due, over)
		}
	})
}

// TestARowIsFoundWhenItIsDue, though the next round is far away: the look says
// when the next one is, and whoever makes such a row tells.
func TestARowIsFoundWhenItIsDue(t *testing.T) {
	t.Parallel()
	slow := func(cfg *processor.NeedRetryConfig) { cfg.PollInterval = 10 * time.Second }
	delayed := func(k *taker, d time.Duration) storage.ID {
		rec := record("a", k.keeper.Current().Number())
		rec.Delay = d
		return k.append(rec)[0]
	}
	arrives := func(t *testing.T, k *taker, id storage.ID, in time.Duration) {
		t.Helper()
		<-time.After(in)
		if got := k.take(); len(got) != 0 {
			t.Errorf("%d rows before they are due", len(got))
		}
		<-time.After(2 * time.Millisecond)
		if got := k.take(); len(got) != 1 || got[0].ID != id {
			t.Errorf("%d rows when one is due", len(got))
		}
	}
	t.Run("seen by a look", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			k := newTaker(t, 100, slow)
			id := delayed(k, 300*time.Millisecond)
			k.run()
			arrives(t, k, id, 299*time.Millisecond)
		})
	})
	t.Run("told", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			k := newTaker(t, 100, slow)
			k.run()
			<-time.After(time.Second)
			id := delayed(k, 300*time.Millisecond)
			for range 1000 { // none of so many is forgotten
				k.retry.Expect(time.Minute)
			}
			k.retry.Expect(300 * time.Millisecond)
			arrives(t, k, id, 299*time.Millisecond)
		})
	})
	t.Run("told while a look is under way", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			k := newTaker(t, 100, slow)
			k.fail(func(context.Context, storage.Query) error {
				<-time.After(time.Second)
				return nil
			})
			k.run()
			<-time.After(1500 * time.Millisecond) // in Due, after the takeover
			id := delayed(k, 2*time.Second)
			k.retry.Expect(2 * time.Second)
			k.fail(nil)
			arrives(t, k, id, 1999*time.Millisecond)
		})
	})
	t.Run("there was no room", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			k := newTaker(t, 0, slow)
			k.run()
			id := delayed(k, 300*time.Millisecond)
			k.retry.Expect(300 * time.Millisecond)
			<-time.After(time.Second)
			k.resize(100)
			<-time.After(time.Millisecond)
			if got := k.take(); len(got) != 1 || got[0].ID != id {
				t.Errorf("%d rows when there was room again", len(got))
			}
		})
	})
}

// TestErrorsArePaced: no hot loop, a few lines, and soon on its way again.
func TestErrorsArePaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newTaker(t, 100, nil)
		calls := 0
		k.fail(func(context.Context, storage.Query) error {
			calls++
			return errAway
		})
		k.publish(1, "a")
		k.run()
		for range 600 { // others keep waking it
			<-time.After(100 * time.Millisecond)
			k.retry.Kick()
			k.retry.Expect(0)
			k.signal()
		}
		if calls > 6*60 || calls < 120 {
			t.Errorf("%d calls in a minute of failures, want about two of each kind a second", calls)
		}
		if n := k.log.count(); n < 1 || n > 7 {
			t.Errorf("%d lines in a minute of failures", n)
		}
		k.fail(nil)
		<-time.After(2 * time.Second)
		if got := k.take(); len(got) != 1 {
			t.Errorf("%d rows within 2 s of the recovery, want 1", len(got))
		}
	})
}

// TestALookThatHangsIsGivenUp: a connection that is dead without telling must
// not stall everything in silence.
func TestALookThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newTaker(t, 100, nil)
		k.publish(1, "a")
		k.fail(func(ctx context.Context, _ storage.Query) error {
			<-ctx.Done()
			return ctx.Err()
		})
		k.run()
		<-time.After(time.Second)
		k.fail(nil)
		<-time.After(12 * time.Second)
		if got := k.take(); len(got) != 1 {
			t.Errorf("%d rows 12 s after a look began to hang, want 1", len(got))
		}
		if k.log.count() == 0 {
			t.Error("nothing was logged")
		}
	})
}

func TestKickLooksAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newTaker(t, 100, func(cfg *processor.NeedRetryConfig) { cfg.PollInterval = time.Minute })
		k.run()
		<-time.After(time.Second)
		k.publish(1, "a")
		k.retry.Kick()
		<-time.After(time.Millisecond)
		if got := k.take(); len(got) != 1 {
			t.Errorf("%d rows after Kick, want 1", len(got))
		}
	})
}

// TestScansFromTheStartTakeATenthOfTheTime, however often they are asked for.
func TestScansFromTheStartTakeATenthOfTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newTaker(t, 100, nil)
		k.fail(func(context.Context, storage.Query) error {
			<-time.After(5 * time.Millisecond)
			return nil
		})
		k.run()
		for range 10000 {
			<-time.After(time.Millisecond)
			k.retry.Kick()
		}
		if n := len(k.seen()); n > 2*110 {
			t.Errorf("%d looks of 5 ms in 10 s, want at most a tenth of the time", n)
		}
	})
}

// TestANewNumberStartsFromTheBeginning: nothing that was known of the old one
// holds.
func TestANewNumberStartsFromTheBeginning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newTaker(t, 100, func(cfg *processor.NeedRetryConfig) { cfg.PollInterval = time.Minute })
		k.publish(10, "a")
		k.run()
		<-time.After(time.Second)
		first := k.take()
		k.hand.Leave(first[0].ID) // one of them was given back
		k.lose()
		<-time.After(time.Second)
		second := k.take()
		if len(first) != 10 || len(second) != 1 || second[0].ID != first[0].ID {
			t.Fatalf("%d rows, then %d; want 10, and the one that is not in hand", len(first), len(second))
		}
		if owner := k.row(first[0].ID).Owner; owner != k.keeper.Current().Number() {
			t.Errorf("its owner is %d, want %d", owner, k.keeper.Current().Number())
		}
	})
}
