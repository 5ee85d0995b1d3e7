package processor_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
)

// publishers begin a transaction with many messages, and return how it ends.
func publishers() map[string]func(s *sender, each func(wr storage.Writer)) (end func(committed bool)) {
	return map[string]func(*sender, func(storage.Writer)) func(bool){
		"probed": func(_ *sender, each func(storage.Writer)) func(bool) {
			wr := &probed{}
			each(wr)
			return func(bool) { wr.ended.Store(true) }
		},
		"notified": func(_ *sender, each func(storage.Writer)) func(bool) {
			wr := &notified{}
			each(wr)
			return func(committed bool) { wr.f(committed) }
		},
	}
}

// TestATransactionWithManyMessages is looked for with few ids, and scanned for
// when one of them shows: also when it shows after the end was seen.
func TestATransactionWithManyMessages(t *testing.T) {
	t.Parallel()
	for name, begin := range publishers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := prompt(t, nil)
				var recs []*storage.Record
				end := begin(s, func(wr storage.Writer) {
					for range 20_000 {
						rec := record("a", s.number())
						recs = append(recs, rec)
						s.waker.Watch(wr, processor.Written{Owner: s.number(), IDs: []storage.ID{rec.ID}})
					}
				})
				end(true)
				<-time.After(20 * time.Millisecond)
				s.append(recs...)
				<-time.After(50 * time.Millisecond)
				synctest.Wait()
				if n := s.b.count("a"); n != len(recs) {
					t.Errorf("%d of %d messages have left", n, len(recs))
				}
				ids := 0
				for _, l := range s.seen() {
					ids += len(l.query.IDs)
				}
				if ids > 500 {
					t.Errorf("%d ids were looked for, want some", ids)
				}
			})
		})
	}
}

// TestOneCallbackATransaction, however many messages there are in it.
func TestOneCallbackATransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, wr := prompt(t, nil), &notified{}
		recs := make([]*storage.Record, 900)
		for i := range recs {
			recs[i] = record("a", s.number())
			s.waker.Watch(wr, processor.Written{Owner: s.number(), IDs: []storage.ID{recs[i].ID}})
		}
		s.append(recs...)
		wr.f(true)
		<-time.After(time.Millisecond)
		synctest.Wait()
		if n := s.b.count("a"); n != len(recs) || wr.calls != 1 {
			t.Errorf("%d of %d messages have left, after %d callbacks", n, len(recs), wr.calls)
		}
		// One more, whose publish the end has overtaken.
		late := record("a", s.number())
		s.append(late)
		s.waker.Watch(wr, processor.Written{Owner: s.number(), IDs: []storage.ID{late.ID}})
		wr.f(true)
		<-time.After(time.Millisecond)
		synctest.Wait()
		if n := s.b.count("a"); n != len(recs)+1 {
			t.Error("the late one has not left")
		}
	})
}

// TestASavepointWithTheFirstOfManyIsRolledBack: the latest are looked for too.
func TestASavepointWithTheFirstOfManyIsRolledBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, wr := prompt(t, nil), &probed{}
		for range 5000 {
			s.waker.Watch(wr, processor.Written{Owner: s.number(), IDs: []storage.ID{record("a", 0).ID}})
		}
		s.waker.Watch(wr, processor.Written{Owner: s.number(), IDs: s.publish(1, "a")})
		wr.ended.Store(true)
		<-time.After(10 * time.Millisecond)
		synctest.Wait()
		if n := s.b.count("a"); n != 1 {
			t.Errorf("%d messages have left, want 1", n)
		}
	})
}

// TestATransactionOutlivesTheNumber: what is published before and after the
// number changed is found.
func TestATransactionOutlivesTheNumber(t *testing.T) {
	t.Parallel()
	for name, begin := range publishers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := prompt(t, nil)
				var recs []*storage.Record
				publish := func(wr storage.Writer) {
					rec := record("a", s.number())
					recs = append(recs, rec)
					s.waker.Watch(wr, processor.Written{Owner: s.number(), IDs: []storage.ID{rec.ID}})
				}
				end := begin(s, func(wr storage.Writer) {
					publish(wr)
					if n, ok := wr.(*notified); ok { // the fake remembers the last one alone
						first := n.f
						defer func() {
							second := n.f
							n.f = func(committed bool) { first(committed); second(committed) }
						}()
					}
					s.lose()
					<-time.After(time.Second)
					publish(wr)
				})
				s.append(recs...)
				end(true)
				<-time.After(60 * time.Millisecond)
				synctest.Wait()
				if n := s.b.count("a"); n != 2 {
					t.Errorf("%d of 2 messages have left", n)
				}
			})
		})
	}
}

// TestManyPublishInOneTransactionAtOnce: nothing is lost between them and the
// end.
func TestManyPublishInOneTransactionAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, wr := prompt(t, nil), &probed{}
		told := &notified{}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				s.waker.Watch(told, processor.Written{Owner: s.number(), IDs: s.publish(10, "told")})
				s.waker.Watch(wr, processor.Written{Owner: s.number(), IDs: s.publish(10, "probed")})
			})
		}
		all.Wait()
		told.f(true)
		wr.ended.Store(true)
		<-time.After(10 * time.Millisecond)
		synctest.Wait()
		if s.b.count("told") != 80 || s.b.count("probed") != 80 {
			t.Errorf("%d and %d of 80 have left", s.b.count("told"), s.b.count("probed"))
		}
	})
}
