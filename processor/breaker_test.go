package processor_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// TestBrokerAwayCostsNoAttempt: nothing is sent meanwhile, the probes are at
// most a second apart, and what waits leaves when it is back.
func TestBrokerAwayCostsNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		s.b.away(true)
		s.publish(1000, "a")
		s.start()
		<-time.After(10 * time.Second)
		sends := s.b.count("a")
		if sends == 0 || sends > 1000 {
			t.Errorf("%d messages were sent to a broker that is away", sends)
		}
		<-time.After(time.Hour)
		if n := s.b.count("a"); n != sends {
			t.Errorf("%d messages were sent while the breaker was open", n-sends)
		}
		s.b.set(func(b *broker) {
			for i := 1; i < len(b.checks); i++ {
				if d := b.checks[i].Sub(b.checks[i-1]); d > time.Second || i > 10 && d < 400*time.Millisecond {
					t.Fatalf("probe %d came after %s", i, d)
				}
			}
		})
		if n := s.log.count(); n > 10 {
			t.Errorf("%d lines in an hour without the broker", n)
		}
		s.b.away(false)
		<-time.After(3 * time.Second)
		for id, rec := range s.all() {
			if rec.Status != storage.Succeeded || rec.Retries != 0 {
				t.Fatalf("afterwards row %v is %v with %d retries", id, rec.Status, rec.Retries)
			}
		}
	})
}

// TestAnOutageThatComesAndGoes: the breaker always closes again, and a broker
// that takes probes but no messages is not flooded.
func TestAnOutageThatComesAndGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		s.b.answer = always(transport.ErrUnavailable) // and Check says all is well
		id := s.publish(1, "a")[0]
		s.start()
		<-time.After(time.Minute)
		if n := s.b.count("a"); n < 30 || n > 200 {
			t.Errorf("%d sends in a minute, want about one a second", n)
		}
		s.b.set(func(b *broker) { b.answer = nil })
		<-time.After(2 * time.Second)
		if rec := s.row(id); rec.Status != storage.Succeeded {
			t.Errorf("the row is %v", rec.Status)
		}
		for range 20 {
			s.b.away(true)
			s.publish(1, "a")
			<-time.After(2 * time.Second)
			s.b.away(false)
			<-time.After(3 * time.Second)
			if n := s.unfinished(); n != 0 {
				t.Fatalf("%d rows are left though the broker is back", n)
			}
		}
	})
}

// TestANewOutageIsProbedSoon: the waits grew in the last one.
func TestANewOutageIsProbedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		s.b.away(true)
		s.publish(1, "a")
		s.start()
		<-time.After(10 * time.Second)
		s.b.away(false)
		<-time.After(3 * time.Second)
		s.b.away(true)
		s.waker.Committed(processor.Written{Owner: s.number(), IDs: s.publish(1, "b")})
		<-time.After(10 * time.Millisecond)
		s.b.away(false)
		<-time.After(60 * time.Millisecond)
		if n := s.unfinished(); n != 0 {
			t.Error("70 ms after a short outage the message has not left")
		}
	})
}

// TestProbeThatPanicsOrHangsDoesNotStallTheBreaker: nor end the process.
func TestProbeThatPanicsOrHangsDoesNotStallTheBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		s.b.away(true)
		calls := 0
		s.b.set(func(b *broker) {
			b.check = func(ctx context.Context) error {
				switch calls++; calls {
				case 1:
					panic("on purpose")
				case 2:
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}
		})
		s.publish(1, "a")
		s.start()
		<-time.After(time.Millisecond)
		s.b.set(func(b *broker) { b.answer = nil })
		<-time.After(10 * time.Second)
		if n := s.unfinished(); n != 0 {
			t.Error("the row was not sent")
		}
	})
}

// TestWhoCannotReachTheBrokerLeavesTheRowsToOthers: after a lease without it,
// with nothing in hand, the number is given up; it joins again when the broker
// is back.
func TestWhoCannotReachTheBrokerLeavesTheRowsToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		s.b.away(true)
		list := s.publish(10, "a")
		s.start()
		<-time.After(lease - time.Second)
		if s.keeper.Current() == nil {
			t.Error("the number was given up too soon")
		}
		<-time.After(3 * time.Second)
		if s.keeper.Current() != nil {
			t.Fatal("there is a number though the broker has been away for a lease")
		}
		other, err := s.Store.Join(t.Context(), storage.Instance{Box: storage.Outbox, Version: "v1", Lease: lease})
		if err != nil {
			t.Fatal(err)
		}
		taken, err := other.TakeOver(t.Context(), storage.Query{Lanes: []storage.Lane{{Limit: 5}}})
		if err != nil || len(taken) != 5 || taken[0].Takeovers != 0 {
			t.Fatalf("another takes %d rows, %v; want 5, with no death counted", len(taken), err)
		}
		for _, rec := range taken {
			if _, err := other.Settle(t.Context(), storage.Outcome{ID: rec.ID, Kind: storage.Succeed, After: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, s.append(record("a", 0))...) // published meanwhile
		s.b.away(false)
		<-time.After(3 * time.Second)
		if s.keeper.Current() == nil {
			t.Error("there is no number though the broker is back")
		}
		for _, id := range list {
			if rec := s.row(id); rec.Status != storage.Succeeded {
				t.Errorf("a row is %v", rec.Status)
			}
		}
	})
}

// TestWhatIsOnTheWireKeepsTheNumber: it may still be confirmed.
func TestWhatIsOnTheWireKeepsTheNumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		s.b.away(true)
		gone := fmt.Errorf("%w: reset", transport.ErrUnavailable)
		s.b.answer = func(_ context.Context, m *transport.Message) error {
			if m.Topic == "slow" {
				<-time.After(50 * time.Second)
				return nil
			}
			return gone
		}
		slow := s.publish(1, "slow")[0]
		s.publish(1, "a")
		s.start()
		<-time.After(45 * time.Second)
		if s.keeper.Current() == nil {
			t.Error("the number was given up with a row in hand")
		}
		<-time.After(10 * time.Second)
		if rec := s.row(slow); rec.Status != storage.Succeeded || s.b.count("slow") != 1 {
			t.Errorf("the row is %v after %d sends", rec.Status, s.b.count("slow"))
		}
	})
}
