package processor_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// hangs waits until the Send is cut.
func hangs(ctx context.Context, _ *transport.Message) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", transport.ErrUnavailable, context.Cause(ctx))
}

// TestATopicThatHangsDoesNotHoldUpOthers is case C028, with one such topic and
// with three.
func TestATopicThatHangsDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	for _, slow := range []int{1, 3} {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSender(t, time.Second, func(cfg *processor.DispatcherConfig) { cfg.BatchSize = 5 })
				s.b.answer = func(ctx context.Context, m *transport.Message) error {
					if m.Topic != "fast" {
						return hangs(ctx, m)
					}
					return nil
				}
				for i := range slow {
					s.publish(40, fmt.Sprint("slow", i))
				}
				s.publish(1000, "fast")
				s.start()
				<-time.After(5 * time.Second)
				if n := s.b.count("fast"); n != 1000 {
					t.Errorf("%d of 1000 messages left in 5 s beside %d topics that hang", n, slow)
				}
				<-time.After(60 * time.Second)
				counted := 0
				for _, rec := range s.Records(storage.Outbox) {
					if rec.Topic == "slow0" {
						counted += rec.Retries
					}
				}
				if counted == 0 {
					t.Error("a Send that hung was not counted as an attempt")
				}
			})
		})
	}
}

// TestShutdownCountsNothing: what was on the wire is due as before.
func TestShutdownCountsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		s.b.answer = hangs
		id := s.publish(1, "a")[0]
		untried := s.publish(10, "b")
		s.strangers(3, "c")
		<-time.After(2 * time.Second)
		s.start()
		<-time.After(time.Second)
		s.endTake()
		<-time.After(time.Second)
		s.endWork()
		<-s.done
		if rec := s.row(id); rec.Retries != 0 || rec.Status != storage.Scheduled || rec.Position.DueAt.After(time.Now()) {
			t.Errorf("%d retries, %v, due %v", rec.Retries, rec.Status, rec.Position.DueAt)
		}
		if rec := s.row(untried[0]); rec.Retries != 0 || rec.Status != storage.Scheduled {
			t.Errorf("%d retries, %v", rec.Retries, rec.Status)
		}
		for _, rec := range s.Records(storage.Outbox) {
			if rec.Topic == "c" && rec.Takeovers != 1 {
				t.Errorf("a clean stop was charged: takeovers %d", rec.Takeovers)
			}
		}
		if n := s.d.Hand().Len(); n != 0 {
			t.Errorf("%d rows left in hand", n)
		}
	})
}

// TestStopWaitsForConfirmations: nothing new is taken, what is on the wire is
// finished and stored.
func TestStopWaitsForConfirmations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		s.b.answer = func(context.Context, *transport.Message) error {
			<-time.After(2 * time.Second)
			return nil
		}
		id := s.publish(1, "a")[0]
		s.start()
		<-time.After(time.Second)
		s.endTake()
		late := s.publish(1, "a")[0]
		<-s.done
		if rec := s.row(id); rec.Status != storage.Succeeded {
			t.Errorf("what was on the wire is %v", rec.Status)
		}
		if rec := s.row(late); rec.Status != storage.Scheduled || s.b.count("a") != 1 {
			t.Errorf("what came later is %v after %d sends", rec.Status, s.b.count("a"))
		}
	})
}

// TestALostLeaseCutsTheSend: it counts nothing, and the row is sent under the
// new number when the first Send has ended.
func TestALostLeaseCutsTheSend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		var ended atomic.Bool
		calls := 0
		s.b.answer = func(ctx context.Context, m *transport.Message) error {
			if calls++; calls == 1 {
				err := hangs(ctx, m)
				<-time.After(3 * time.Second) // is slow to notice
				ended.Store(true)
				return err
			}
			if !ended.Load() {
				t.Error("the row is sent twice at once")
			}
			return nil
		}
		id := s.publish(1, "a")[0]
		s.start()
		<-time.After(time.Second)
		s.lose()
		<-time.After(6 * time.Second)
		if rec := s.row(id); rec.Status != storage.Succeeded || rec.Retries != 0 || s.b.count("a") != 2 {
			t.Errorf("%v, %d retries, %d sends", rec.Status, rec.Retries, s.b.count("a"))
		}
		if len(s.b.checks) != 0 {
			t.Error("the breaker opened")
		}
	})
}

// TestALateConfirmationStillSettles, as long as nobody else has the row.
func TestALateConfirmationStillSettles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Minute, nil)
		s.b.answer = func(ctx context.Context, _ *transport.Message) error {
			<-ctx.Done() // the lease is lost
			return nil   // but the broker had it
		}
		id := s.publish(1, "a")[0]
		s.start()
		<-time.After(time.Second)
		s.fail(func(context.Context, storage.Query) error { return errAway })
		s.lose()
		<-time.After(time.Second)
		if rec := s.row(id); rec.Status != storage.Succeeded {
			t.Errorf("the row is %v", rec.Status)
		}
	})
}

// TestTheWindowIsHonoured: no more rows in memory than that.
func TestTheWindowIsHonoured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, func(cfg *processor.DispatcherConfig) { cfg.SendWindow, cfg.BatchSize = 100, 20 })
		s.b.answer = func(context.Context, *transport.Message) error {
			<-time.After(time.Millisecond)
			return nil
		}
		for i := range 10 {
			s.publish(200, fmt.Sprint("topic", i))
		}
		s.start()
		most := 0
		for range 5000 {
			<-time.After(100 * time.Microsecond)
			most = max(most, s.d.Hand().Len())
		}
		if most > 100 || most < 50 {
			t.Errorf("%d rows in hand, the window is 100", most)
		}
		s.soon(5*time.Second, "all are sent", func() bool { return len(s.b.log()) == 2000 })
	})
}

// TestLargeBodiesAreBounded: what is in hand is counted in bytes, too.
func TestLargeBodiesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size, n = 4 << 20, 40
		s := newSender(t, time.Second, func(cfg *processor.DispatcherConfig) { cfg.BatchSize = 1 })
		var most, now atomic.Int64
		s.b.answer = func(context.Context, *transport.Message) error {
			<-time.After(time.Second)
			return nil
		}
		body := make([]byte, size)
		for i := range n {
			rec := record(fmt.Sprint("topic", i), s.keeper.Current().Number())
			rec.Body = body
			s.append(rec)
		}
		s.start()
		for range 60 {
			<-time.After(250 * time.Millisecond)
			now.Store(int64(s.d.Hand().Len()) * size)
			most.Store(max(most.Load(), now.Load()))
		}
		if limit := int64(64<<20 + 8<<20 + size); most.Load() > limit {
			t.Errorf("%d bytes in hand, want at most %d", most.Load(), limit)
		}
		if got := len(s.b.log()); got != n {
			t.Errorf("%d of %d messages were sent", got, n)
		}
	})
}

// TestFailingRowsDoNotHoldUpFreshOnes: ten thousand that always fail, with the
// window far smaller.
func TestFailingRowsDoNotHoldUpFreshOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, func(cfg *processor.DispatcherConfig) {
			cfg.SendWindow, cfg.Policy.Count, cfg.Policy.Interval = 1000, 1000, 3*time.Second
		})
		s.b.answer = func(_ context.Context, m *transport.Message) error {
			if m.Topic == "bad" {
				<-time.After(100 * time.Microsecond)
				return transport.ErrRejected
			}
			return nil
		}
		s.publish(10000, "bad")
		s.start()
		<-time.After(3 * time.Second)
		for range 2 {
			id := s.publish(1, "good")[0] // nobody wakes the engine
			<-time.After(2500 * time.Millisecond)
			if rec := s.row(id); rec.Status != storage.Succeeded {
				t.Errorf("after 2.5 s the fresh row is %v", rec.Status)
			}
		}
	})
}

// TestASlowCallbackDoesNotStopTheSending: it is made for hundreds of messages
// that failed.
func TestASlowCallbackDoesNotStopTheSending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, func(cfg *processor.DispatcherConfig) {
			cfg.SendWindow = 200
			cfg.Callback = func(ctx context.Context, _ *storage.Record, _ *transport.Message) {
				select {
				case <-time.After(time.Hour):
				case <-ctx.Done():
				}
			}
		})
		s.b.answer = func(_ context.Context, m *transport.Message) error {
			if m.Topic == "bad" {
				return transport.ErrPermanent
			}
			return nil
		}
		s.publish(500, "bad")
		s.start()
		<-time.After(5 * time.Second)
		id := s.publish(1, "good")[0]
		<-time.After(1500 * time.Millisecond)
		if rec := s.row(id); rec.Status != storage.Succeeded {
			t.Errorf("behind slow callbacks a row is %v", rec.Status)
		}
	})
}
