package processor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
)

// TestABlindWriterIsLookedAfter at once, and 5, 10, 20, 40, then 50 ms after
// each look, for 10 seconds. So it is for a pgx.Tx whose pool has no Tracer.
func TestABlindWriterIsLookedAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prompt(t, nil)
		rec := record("a", s.number())
		s.waker.Watch(blindWriter{}, processor.Written{Owner: s.number(), IDs: []storage.ID{rec.ID}})
		from := time.Now()
		<-time.After(11 * time.Second)
		var at []time.Duration
		for _, l := range s.seen() {
			if len(l.query.IDs) > 0 {
				at = append(at, l.at.Sub(from))
			}
		}
		if len(at) < 6 {
			t.Fatalf("looked only at %v", at)
		}
		want, wait := time.Duration(0), 5*time.Millisecond
		for i, got := range at {
			if got != want {
				t.Fatalf("look %d was after %s, want %s", i, got, want)
			}
			want, wait = want+wait, min(2*wait, 50*time.Millisecond)
		}
		if last := at[len(at)-1]; last < 9900*time.Millisecond || last > 10100*time.Millisecond {
			t.Errorf("the last look was after %s, want 10s", last)
		}
	})
}

// TestABlindWriterIsSeenOnce: its row is not looked for any more when it has
// been seen, however often it is published in the transaction.
func TestABlindWriterIsSeenOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := prompt(t, nil)
		recs := []*storage.Record{record("a", s.number()), record("a", s.number())}
		for _, rec := range recs {
			s.waker.Watch(blindWriter{}, processor.Written{Owner: s.number(), IDs: []storage.ID{rec.ID}})
		}
		<-time.After(100 * time.Millisecond)
		s.append(recs...)
		<-time.After(60 * time.Millisecond)
		synctest.Wait()
		if n := s.b.count("a"); n != 2 {
			t.Errorf("%d of 2 messages have left", n)
		}
		s.seen()
		<-time.After(11 * time.Second)
		if n := s.looksByID(); n != 0 {
			t.Errorf("%d looks for rows that were seen", n)
		}
	})
}
