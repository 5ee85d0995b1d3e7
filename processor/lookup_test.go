package processor_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// TestRowsOfAFormerNumberAreTakenOver: the lease was lost between publish and
// commit.
func TestRowsOfAFormerNumberAreTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, wr := prompt(t, nil), &probed{}
		old := s.number()
		rec := record("a", old)
		s.waker.Watch(wr, processor.Written{Owner: old, IDs: []storage.ID{rec.ID}})
		s.lose()
		<-time.After(time.Second)
		if s.number() == old {
			t.Fatal("the number is the same")
		}
		s.append(rec)
		wr.ended.Store(true)
		<-time.After(30 * time.Millisecond)
		synctest.Wait()
		if s.b.count("a") != 1 {
			t.Error("the message has not left")
		}
	})
}

// TestWithoutRoomRowsAreFoundLater, as soon as there is some, in the order of
// the table and without a scan for every one of them.
func TestWithoutRoomRowsAreFoundLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Minute, func(cfg *processor.DispatcherConfig) { cfg.SendWindow, cfg.BatchSize = 20, 20 })
		release := make(chan struct{})
		s.b.answer = func(context.Context, *transport.Message) error {
			<-release
			return nil
		}
		s.publish(18, "first")
		s.start()
		<-time.After(time.Second)
		for _, topic := range []string{"second", "third"} { // the reserve
			s.waker.Committed(processor.Written{Owner: s.number(), IDs: s.publish(1, topic)})
		}
		<-time.After(time.Second)
		s.seen()
		for range 500 {
			s.waker.Committed(processor.Written{Owner: s.number(), IDs: s.publish(1, "later")})
			<-time.After(10 * time.Millisecond)
		}
		if n := len(s.seen()); n != 0 {
			t.Errorf("%d looks though there is no room", n)
		}
		close(release)
		<-time.After(10 * time.Millisecond)
		synctest.Wait()
		if n := s.b.count("later"); n != 500 {
			t.Errorf("%d of 500 messages have left", n)
		}
		if n := len(s.seen()); n > 150 {
			t.Errorf("%d looks for 500 rows in batches of 20", n)
		}
	})
}

// TestARowThatWaitsForItsRetryIsLeftAlone: it failed before the waker looked.
func TestARowThatWaitsForItsRetryIsLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prompt(t, func(cfg *processor.DispatcherConfig) { cfg.Policy.Interval = time.Hour })
		s.b.set(func(b *broker) { b.answer = always(transport.ErrRejected) })
		list := s.publish(1, "a")
		s.retry.Kick()
		<-time.After(time.Millisecond)
		s.waker.Committed(processor.Written{Owner: s.number(), IDs: list})
		s.waker.Watch(blindWriter{}, processor.Written{Owner: s.number(), IDs: list})
		<-time.After(20 * time.Second)
		if n := s.b.count("a"); n != 1 {
			t.Errorf("%d attempts, want 1 in the hour", n)
		}
	})
}

// TestManyCommitsAtOnceDoNotExceedTheWindow.
func TestManyCommitsAtOnceDoNotExceedTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prompt(t, func(cfg *processor.DispatcherConfig) { cfg.SendWindow = 100 })
		release := make(chan struct{})
		s.b.set(func(b *broker) {
			b.answer = func(context.Context, *transport.Message) error {
				<-release
				return nil
			}
		})
		for range 20 {
			s.waker.Committed(processor.Written{Owner: s.number(), IDs: s.publish(30, "a")})
		}
		<-time.After(100 * time.Millisecond)
		if n := s.d.Hand().Len(); n > 100 || n < 75 {
			t.Errorf("%d rows in hand, the window is 100", n)
		}
		close(release)
		<-time.After(100 * time.Millisecond)
		if n := s.b.count("a"); n != 600 {
			t.Errorf("%d of 600 messages have left", n)
		}
	})
}

// TestAWindowSmallerThanATransaction: it is found all the same.
func TestAWindowSmallerThanATransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prompt(t, func(cfg *processor.DispatcherConfig) { cfg.SendWindow = 10 })
		s.waker.Committed(processor.Written{Owner: s.number(), IDs: s.publish(100, "a")})
		<-time.After(10 * time.Millisecond)
		synctest.Wait()
		if n := s.b.count("a"); n != 100 {
			t.Errorf("%d of 100 messages have left", n)
		}
	})
}

// TestAClosedWakerDoesNothing: publishing goes on after Stop.
func TestAClosedWakerDoesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, wr := prompt(t, nil), &probed{}
		number := s.number()
		s.waker.Watch(wr, processor.Written{Owner: number, IDs: s.publish(1, "a")})
		s.endTake()
		<-s.done
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				s.waker.Watch(&probed{}, processor.Written{Owner: number, IDs: []storage.ID{{1}}})
				s.waker.Watch(blindWriter{}, processor.Written{Owner: number, IDs: []storage.ID{{2}}})
				s.waker.Committed(processor.Written{Owner: number, IDs: []storage.ID{{3}}})
			})
		}
		wg.Wait()
		before := wr.asked.Load()
		<-time.After(time.Minute)
		if wr.asked.Load() != before || s.looksByID() != 0 {
			t.Error("it goes on after its end")
		}
	})
}
