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

// keyed commits n rows of a key, one after another.
func (s *tables) keyed(n int, key string, owner int64) []storage.ID {
	s.t.Helper()
	var list []storage.ID
	for range n {
		rec := record("t", owner)
		rec.Key = key
		list = append(list, s.append(rec)...)
	}
	return list
}

// wantSent compares what was sent, in order, of some rows.
func (s *sender) wantSent(want ...storage.ID) {
	s.t.Helper()
	among := map[string]bool{}
	for _, id := range want {
		among[id.String()] = true
	}
	var got []string
	for _, x := range s.b.log() {
		if among[x.id] {
			got = append(got, x.id)
		}
	}
	if len(got) != len(want) {
		s.t.Fatalf("%d were sent, want %d", len(got), len(want))
	}
	for i, id := range want {
		if got[i] != id.String() {
			s.t.Fatalf("in place %d was sent %s, want %s", i, got[i], id)
		}
	}
}

// TestOneOfAKeyIsUnderWay, and other keys do not wait for it.
func TestOneOfAKeyIsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		slow := s.keyed(3, "slow", s.number())
		s.b.set(func(b *broker) {
			b.answer = func(_ context.Context, m *transport.Message) error {
				if m.ID == slow[0].String() {
					<-time.After(10 * time.Second)
				}
				return nil
			}
		})
		s.start()
		<-time.After(2 * time.Second)
		quick := s.keyed(50, "quick", s.number())
		<-time.After(2 * time.Second)
		s.wantSent(append(slow[:1:1], quick...)...)
		<-time.After(8 * time.Second)
		s.wantSent(slow...)
	})
}

// TestMoreKeysThanRoom: the scan goes on where there was no room.
func TestMoreKeysThanRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, func(cfg *processor.DispatcherConfig) { cfg.SendWindow, cfg.BatchSize = 50, 20 })
		all := map[string][]storage.ID{}
		for i := range 500 {
			key := fmt.Sprintf("k%03d", i)
			all[key] = s.keyed(2, key, s.number())
		}
		s.start()
		s.soon(10*time.Second, "1,000 rows are sent", func() bool { return len(s.b.log()) == 1000 })
		for _, list := range all {
			s.wantSent(list...)
		}
	})
}

// TestBehindAnothersRow: a row goes soon after the one before it, which another
// instance has; later than a second, within a PollInterval.
func TestBehindAnothersRow(t *testing.T) {
	t.Parallel()
	for wait, within := range map[time.Duration]time.Duration{300 * time.Millisecond: 60 * time.Millisecond, 30 * time.Second: 1100 * time.Millisecond} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSender(t, time.Second, nil)
				other, err := s.Store.Join(t.Context(), storage.Instance{Box: storage.Outbox, Version: "v1", Lease: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				s.start()
				theirs := s.keyed(1, "k", other.Number())
				mine := s.keyed(1, "k", s.number())
				s.waker.Committed(processor.Written{Owner: s.number(), Keys: []string{"k"}})
				<-time.After(wait)
				if n := len(s.b.log()); n != 0 {
					t.Fatalf("%d were sent before their turn", n)
				}
				if _, err := other.Settle(t.Context(), storage.Outcome{ID: theirs[0], Kind: storage.Succeed}); err != nil {
					t.Fatal(err)
				}
				<-time.After(within)
				s.wantSent(mine...)
			})
		})
	}
}

// TestWhatADeadInstanceHadBehindItsFirstRow is not suspected: it was not tried.
func TestWhatADeadInstanceHadBehindItsFirstRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		m, err := s.Store.Join(t.Context(), storage.Instance{Box: storage.Outbox, Version: "v1", Lease: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		list := s.keyed(100, "k", m.Number())
		s.start()
		<-time.After(4 * time.Second)
		s.wantSent(list...)
		if s.claimed != 1 {
			t.Errorf("%d rows were claimed, want the first one alone", s.claimed)
		}
	})
}

// TestAFailedRowIsTriedWhenItIsDue, and holds up its key until it is final.
func TestAFailedRowIsTriedWhenItIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, time.Second, nil)
		list := s.keyed(2, "k", s.number())
		var tries []time.Duration
		begun := time.Now()
		s.b.set(func(b *broker) {
			b.answer = func(_ context.Context, m *transport.Message) error {
				if m.ID == list[0].String() {
					tries = append(tries, time.Since(begun).Truncate(time.Second))
					return transport.ErrRejected
				}
				return nil
			}
		})
		s.start()
		<-time.After(25 * time.Second)
		if len(tries) != 3 || tries[1] != 10*time.Second || tries[2] != 20*time.Second {
			t.Errorf("tries after %v", tries)
		}
		if row := s.row(list[1]); row.Status != storage.Succeeded {
			t.Errorf("the next one is %v", row.Status)
		}
		if len(s.callbacks()) != 1 {
			t.Errorf("%d callbacks were made", len(s.callbacks()))
		}
	})
}
