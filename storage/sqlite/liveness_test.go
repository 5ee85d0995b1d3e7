package sqlite_test

import (
	"errors"
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

func joinFor(tb testing.TB, s *gormstore.Store, lease time.Duration) storage.Member {
	tb.Helper()
	m, err := s.Join(tb.Context(), storage.Instance{Box: storage.Outbox, Version: version, Lease: lease})
	must(tb, err)
	return m
}

// TestAHeartbeatThatStandsStillIsRunOut although the database's clock says that
// it lives for long: it may have been set back.
func TestAHeartbeatThatStandsStillIsRunOut(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	dead, heir := joinFor(t, s, 30*time.Millisecond), joinFor(t, s, time.Minute)
	publish(t, s, outgoing(dead.Number()))
	must(t, s.DB().Exec("UPDATE cap_instances SET beat_at = beat_at + 86400000000 WHERE number = ?", dead.Number()).Error)
	start := time.Now()
	var got []*storage.Record
	eventually(t, "its row is taken over", func() bool {
		var err error
		got, err = heir.TakeOver(t.Context(), outLane(5))
		must(t, err)
		return len(got) > 0
	})
	if got[0].Takeovers != 1 {
		t.Errorf("takeovers %d", got[0].Takeovers)
	}
	if d := time.Since(start); d < 30*time.Millisecond {
		t.Errorf("declared dead after %v", d)
	}
	if err := dead.Beat(t.Context()); !errors.Is(err, storage.ErrLost) {
		t.Errorf("the dead beats: %v", err)
	}
	must(t, dead.Leave(t.Context()))
	if n := count(t, s, "SELECT died FROM cap_instances WHERE number = ?", dead.Number()); n != 1 {
		t.Error("leaving changed a death")
	}
}

// TestAMovingHeartbeatLives, even where the database's clock was set back.
func TestAMovingHeartbeatLives(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const lease = time.Second
	alive, heir := joinFor(t, s, lease), joinFor(t, s, time.Minute)
	publish(t, s, outgoing(alive.Number()))
	for range 4 {
		until := time.Now().Add(lease / 2)
		eventually(t, "half a lease is over", func() bool {
			got, err := heir.TakeOver(t.Context(), outLane(5))
			must(t, err)
			if len(got) > 0 {
				t.Fatal("a living member's row was taken over")
			}
			return time.Now().After(until)
		})
		must(t, alive.Beat(t.Context()))
		must(t, s.DB().Exec("UPDATE cap_instances SET beat_at = beat_at + ? WHERE number = ?", int64(3600000000), alive.Number()).Error)
	}
}

// TestAMemberThatIsNotLivingTakesNothing over.
func TestAMemberThatIsNotLivingTakesNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ended, expired := joinFor(t, s, time.Minute), joinFor(t, s, time.Minute)
	publish(t, s, outgoing(0))
	must(t, ended.Leave(t.Context()))
	must(t, s.DB().Exec("UPDATE cap_instances SET beat_at = 1 WHERE number = ?", expired.Number()).Error)
	for _, m := range []storage.Member{ended, expired} {
		if got, err := m.TakeOver(t.Context(), outLane(5)); !errors.Is(err, storage.ErrLost) || len(got) > 0 {
			t.Error(got, err)
		}
	}
	must(t, expired.Beat(t.Context()))
	if got, err := expired.TakeOver(t.Context(), outLane(5)); err != nil || len(got) != 1 {
		t.Error(got, err)
	}
}

// TestAnOwnerWhoseHeartbeatIsGoneDidNotDie.
func TestAnOwnerWhoseHeartbeatIsGoneDidNotDie(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	gone, heir := joinFor(t, s, time.Minute), joinFor(t, s, time.Minute)
	publish(t, s, outgoing(gone.Number()))
	must(t, gone.Leave(t.Context()))
	must(t, s.DB().Exec("UPDATE cap_instances SET ended_at = 1 WHERE number = ?", gone.Number()).Error)
	_, err := s.Purge(t.Context(), storage.Purge{Box: storage.Outbox, Version: version, Limit: 1})
	must(t, err)
	if n := count(t, s, "SELECT count(*) FROM cap_instances"); n != 1 {
		t.Errorf("%d heartbeats", n)
	}
	if got, err := heir.TakeOver(t.Context(), outLane(5)); err != nil || len(got) != 1 || got[0].Takeovers != 0 {
		t.Error(got, err)
	}
}

// TestAnIdleTakeOverDoesNotNeedTheWritingConnection.
func TestAnIdleTakeOverDoesNotNeedTheWritingConnection(t *testing.T) {
	t.Parallel()
	s := newStore(t, impatient)
	a, b := joinFor(t, s, time.Minute), joinFor(t, s, time.Minute)
	publish(t, s, outgoing(a.Number()))
	tx := s.DB().Begin()
	must(t, tx.Error)
	for _, q := range []storage.Query{outLane(5), {IDs: []storage.ID{{1}}}} {
		if got, err := b.TakeOver(t.Context(), q); err != nil || len(got) > 0 {
			t.Error(got, err)
		}
		due(t, a, q)
	}
	must(t, tx.Rollback().Error)
}

// TestManyOwnersAndLanes: more than fit into a statement.
func TestManyOwnersAndLanes(t *testing.T) {
	t.Parallel()
	s := newStore(t, normal)
	var q storage.Query
	var recs []*storage.Record
	for i := range 40 {
		sub := time.Duration(i).String()
		q.Lanes = append(q.Lanes, storage.Lane{Group: "g", Subscriber: sub, Limit: 2})
		for j := range 3 {
			r := incoming(time.Duration(j).String())
			r.Subscriber = sub
			recs = append(recs, r)
		}
	}
	a, heir := join(t, s, storage.Inbox), join(t, s, storage.Inbox)
	fresh, err := a.Accept(t.Context(), recs...)
	must(t, err)
	if len(fresh) != len(recs) {
		t.Fatalf("%d inserted", len(fresh))
	}
	if got := due(t, a, q); len(got) != 80 {
		t.Errorf("%d rows are due", len(got))
	}
	must(t, s.DB().Exec("UPDATE cap_received SET owner = 1 + seq % 7").Error)
	for _, want := range []int{80, 40, 0} {
		got, err := heir.TakeOver(t.Context(), q)
		must(t, err)
		if len(got) != want {
			t.Errorf("%d rows taken over, want %d", len(got), want)
		}
	}
}
