package processor_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
)

// blindWriter tells nothing of the end of its transaction.
type blindWriter struct{}

func (blindWriter) Append(context.Context, ...*storage.Record) error { return errors.New("not used") }

// probed tells whether it has ended, when it is asked.
type probed struct {
	blindWriter

	ended atomic.Bool
	asked atomic.Int64
	waits chan struct{} // the answer waits for it, if it is not nil
}

func (p *probed) Ended() bool {
	p.asked.Add(1)
	if p.waits != nil {
		<-p.waits
	}
	return p.ended.Load()
}

func (p *probed) TxKey() any { return p }

// notified tells by itself.
type notified struct {
	blindWriter

	calls  int
	f      func(committed bool)
	values sync.Map
}

func (n *notified) OnEnd(f func(committed bool)) { n.calls, n.f = n.calls+1, f }

func (n *notified) TxValues() *sync.Map { return &n.values }

// prompt runs an engine whose own rounds are a minute apart, so that what is
// sent sooner was found by the waker.
func prompt(t *testing.T, adjust func(*processor.DispatcherConfig)) *sender {
	t.Helper()
	s := newSender(t, time.Minute, adjust)
	s.start()
	<-time.After(time.Second)
	s.seen()
	return s
}

func (s *sender) number() int64 { return s.keeper.Current().Number() }

// looksByID counts the looks for rows by their id, since the last call.
func (s *sender) looksByID() int {
	n := 0
	for _, l := range s.seen() {
		if len(l.query.IDs) > 0 {
			n++
		}
	}
	return n
}

func TestCommitIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("notified", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s, wr := prompt(t, nil), &notified{}
			rec := record("a", s.number())
			s.waker.Watch(wr, processor.Written{Owner: s.number(), IDs: []storage.ID{rec.ID}})
			<-time.After(time.Minute)
			s.append(rec)
			wr.f(true)
			synctest.Wait()
			if s.b.count("a") != 1 {
				t.Error("the message has not left")
			}
		})
	})
	t.Run("probed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			for _, age := range []time.Duration{0, 20 * time.Millisecond, time.Second, 10 * time.Second} {
				s, wr := prompt(t, nil), &probed{}
				recs := []*storage.Record{record("a", s.number()), record("a", s.number())}
				for _, rec := range recs { // two publishes in one transaction
					s.waker.Watch(wr, processor.Written{Owner: s.number(), IDs: []storage.ID{rec.ID}})
				}
				<-time.After(age)
				s.append(recs...)
				wr.ended.Store(true)
				<-time.After(min(max(age/50, time.Millisecond), 50*time.Millisecond))
				synctest.Wait()
				if n := s.b.count("a"); n != 2 {
					t.Errorf("of a transaction of %s %d messages have left, want 2", age, n)
				}
				if n := s.looksByID(); n != 1 {
					t.Errorf("%d looks", n)
				}
			}
		})
	})
	t.Run("told", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := prompt(t, nil)
			s.waker.Committed(processor.Written{Owner: s.number(), IDs: s.publish(10, "a")})
			synctest.Wait()
			if n := s.b.count("a"); n != 10 {
				t.Errorf("%d messages have left, want 10", n)
			}
		})
	})
	t.Run("blind", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := prompt(t, nil)
			rec := record("a", s.number())
			s.waker.Watch(blindWriter{}, processor.Written{Owner: s.number(), IDs: []storage.ID{rec.ID}})
			<-time.After(3 * time.Second)
			s.append(rec)
			<-time.After(50 * time.Millisecond)
			synctest.Wait()
			if s.b.count("a") != 1 {
				t.Error("the message has not left 50 ms after the commit")
			}
		})
	})
}

// TestACommitThatShowsLateIsSeen: some databases show it a little after it is
// reported.
func TestACommitThatShowsLateIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, late := range []time.Duration{30 * time.Millisecond, 400 * time.Millisecond, 900 * time.Millisecond} {
			s := prompt(t, nil)
			rec := record("a", s.number())
			s.waker.Committed(processor.Written{Owner: s.number(), IDs: []storage.ID{rec.ID}})
			<-time.After(late)
			s.append(rec)
			<-time.After(41 * time.Millisecond)
			synctest.Wait()
			if s.b.count("a") != 1 {
				t.Errorf("of a commit that shows after %s the message has not left", late)
			}
		}
	})
}

// TestARollbackIsLookedForForASecond, a blind writer for ten, a few times.
func TestARollbackIsLookedForForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, wr := prompt(t, nil), &probed{}
		rolledBack := []storage.ID{record("a", 0).ID}
		s.waker.Watch(wr, processor.Written{Owner: s.number(), IDs: rolledBack})
		wr.ended.Store(true)
		s.waker.Watch(&notified{}, processor.Written{Owner: s.number(), IDs: rolledBack}) // says so: no look at all
		<-time.After(2 * time.Second)
		if n := s.looksByID(); n < 5 || n > 35 {
			t.Errorf("%d looks for a row that was rolled back", n)
		}
		<-time.After(time.Minute)
		if n := s.looksByID(); n != 0 {
			t.Errorf("%d looks long after the rollback", n)
		}
		s.waker.Watch(blindWriter{}, processor.Written{Owner: s.number(), IDs: rolledBack})
		<-time.After(11 * time.Second)
		if n := s.looksByID(); n < 150 || n > 250 {
			t.Errorf("%d looks in 10 s for what may be committed", n)
		}
		<-time.After(time.Minute)
		if n := s.looksByID(); n != 0 {
			t.Errorf("%d looks later", n)
		}
	})
}

// TestThousandsOfOpenTransactionsStayCheap: they are asked less often with age.
func TestThousandsOfOpenTransactionsStayCheap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prompt(t, nil)
		open := make([]*probed, 1000)
		for i := range open {
			open[i] = &probed{}
			s.waker.Watch(open[i], processor.Written{Owner: s.number(), IDs: s.publish(1, "open")})
		}
		asked := func() (n int64) {
			for _, p := range open {
				n += p.asked.Load()
			}
			return n
		}
		<-time.After(5 * time.Second)
		before := asked()
		for range 300 { // beside them there is traffic
			wr := &probed{}
			s.waker.Watch(wr, processor.Written{Owner: s.number(), IDs: s.publish(1, "short")})
			wr.ended.Store(true)
			<-time.After(time.Millisecond)
		}
		if n := asked() - before; n > 10*1000 {
			t.Errorf("1000 transactions were asked %d times in 300 ms, want at most 10 each", n)
		}
		if n := s.b.count("short"); n < 299 {
			t.Errorf("%d of 300 short ones have left", n)
		}
		for _, p := range open {
			p.ended.Store(true)
		}
		<-time.After(60 * time.Millisecond)
		synctest.Wait()
		if n := s.b.count("open"); n != 1000 {
			t.Errorf("%d of 1000 have left after their end", n)
		}
	})
}

// TestAnAnswerThatWaitsHoldsUpNoPublisher: database/sql answers when the
// statement that runs has ended.
func TestAnAnswerThatWaitsHoldsUpNoPublisher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, wr := prompt(t, nil), &probed{waits: make(chan struct{})}
		s.waker.Watch(wr, processor.Written{Owner: s.number(), IDs: s.publish(1, "a")})
		<-time.After(10 * time.Millisecond) // the waker asks, and waits
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.waker.Watch(wr, processor.Written{Owner: s.number(), IDs: s.publish(1, "a")})
			s.waker.Watch(&probed{}, processor.Written{Owner: s.number(), IDs: nil})
			s.waker.Committed(processor.Written{Owner: s.number(), IDs: s.publish(1, "b")})
		}()
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("a publisher waits")
		}
		wr.ended.Store(true)
		close(wr.waits)
		<-time.After(time.Millisecond)
		synctest.Wait()
		if s.b.count("a") != 2 || s.b.count("b") != 1 {
			t.Errorf("sent: %d of 2, and %d of 1", s.b.count("a"), s.b.count("b"))
		}
	})
}
