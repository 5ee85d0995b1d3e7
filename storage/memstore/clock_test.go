package memstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
)

const lease = 15 * time.Second

func join(t *testing.T, s *memstore.Store, box storage.Box) storage.Member {
	t.Helper()
	m, err := s.Join(t.Context(), storage.Instance{Box: box, Version: "v1", Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func message(owner int64) *storage.Record {
	return &storage.Record{ID: ids.New(), Version: "v1", Topic: "t", Owner: owner, Body: []byte("body")}
}

func publish(t *testing.T, s *memstore.Store, recs ...*storage.Record) {
	t.Helper()
	if err := commit(t.Context(), s, recs...); err != nil {
		t.Fatal(err)
	}
}

func commit(ctx context.Context, s *memstore.Store, recs ...*storage.Record) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	return errors.Join(tx.Append(ctx, recs...), tx.Commit())
}

func lane(limit int) storage.Query { return storage.Query{Lanes: []storage.Lane{{Limit: limit}}} }

func due(t *testing.T, m storage.Member) (int, time.Duration) {
	t.Helper()
	recs, next, err := m.Due(t.Context(), lane(1000))
	if err != nil {
		t.Fatal(err)
	}
	return len(recs), next
}

func TestDelayEndsWithTheFakeClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		m := join(t, s, storage.Outbox)
		rec := message(m.Number())
		rec.Delay = time.Minute
		at := message(m.Number())
		at.DueAt = time.Now().Add(90 * time.Second).Round(0) // no monotonic reading
		publish(t, s, rec, at)
		for _, step := range []struct {
			wait time.Duration
			rows int
			next time.Duration
		}{
			{0, 0, time.Minute},
			{time.Minute - 1, 0, 1},
			{1, 1, 30 * time.Second},
			{30 * time.Second, 2, -1},
		} {
			<-time.After(step.wait)
			if rows, next := due(t, m); rows != step.rows || next != step.next {
				t.Errorf("after another %v: %d rows due, next %v, want %d and %v", step.wait, rows, next, step.rows, step.next)
			}
		}
	})
}

func TestLeaseEndsWithTheFakeClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		m := join(t, s, storage.Outbox)
		publish(t, s, message(m.Number()))
		<-time.After(lease - 1)
		heir := join(t, s, storage.Outbox)
		if recs, err := heir.TakeOver(t.Context(), lane(9)); err != nil || len(recs) != 0 {
			t.Errorf("a nanosecond before the end of the lease: %d rows, %v", len(recs), err)
		}
		<-time.After(1)
		recs, err := heir.TakeOver(t.Context(), lane(9))
		if err != nil || len(recs) != 1 || recs[0].Takeovers != 1 {
			t.Errorf("at the end of the lease: %d rows, %v", len(recs), err)
		}
		if _, err := m.TakeOver(t.Context(), lane(9)); !errors.Is(err, storage.ErrLost) {
			t.Errorf("a dead member takes over: %v, want ErrLost", err)
		}
	})
}

// Until somebody has declared it dead, a member that comes late lives on.
func TestLateBeatRevivesUnlessDeclaredDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		m := join(t, s, storage.Outbox)
		publish(t, s, message(m.Number()))
		<-time.After(10 * lease)
		if err := m.Beat(t.Context()); err != nil {
			t.Errorf("late beat: %v", err)
		}
		heir := join(t, s, storage.Outbox)
		if recs, err := heir.TakeOver(t.Context(), lane(9)); err != nil || len(recs) != 0 {
			t.Errorf("taken from one that has beaten late: %d rows, %v", len(recs), err)
		}
	})
}

func TestHeartbeatsGoAfterADay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ wait, takeovers int }{
		"remembered": {23, 1},
		"forgotten":  {25, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New(memstore.Config{})
				m := join(t, s, storage.Outbox)
				publish(t, s, message(m.Number()))
				<-time.After(lease)
				if _, err := join(t, s, storage.Outbox).TakeOver(t.Context(), storage.Query{}); err != nil { // declares it dead
					t.Fatal(err)
				}
				<-time.After(time.Duration(c.wait) * time.Hour)
				if n, err := s.Purge(t.Context(), storage.Purge{Box: storage.Inbox, Version: "v1", Limit: 1}); n != 0 || err != nil {
					t.Errorf("purge: %d, %v", n, err)
				}
				recs, err := join(t, s, storage.Outbox).TakeOver(t.Context(), lane(9))
				if err != nil || len(recs) != 1 || recs[0].Takeovers != c.takeovers {
					t.Errorf("taken over after %d hours: %d rows, %v, want takeovers %d", c.wait, len(recs), err, c.takeovers)
				}
			})
		})
	}
}

func TestExpiryIsExact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		m := join(t, s, storage.Outbox)
		rec := message(m.Number())
		publish(t, s, rec)
		if _, err := m.Settle(t.Context(), storage.Outcome{ID: rec.ID, Kind: storage.Succeed, After: time.Hour}); err != nil {
			t.Fatal(err)
		}
		for i, wait := range []time.Duration{time.Hour - 1, 1} {
			<-time.After(wait)
			n, err := s.Purge(t.Context(), storage.Purge{Box: storage.Outbox, Version: "v1", Limit: 9})
			if n != i || err != nil || len(s.Records(storage.Outbox)) != 1-i {
				t.Errorf("purge at %v: %d, %v", wait, n, err)
			}
		}
	})
}

// The end of its context rolls a transaction back, without a call.
func TestContextRollsBackAndTells(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tx, err := s.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan bool, 1)
		tx.(storage.EndNotifier).OnEnd(func(committed bool) { told <- committed })
		<-time.After(time.Minute - 1)
		synctest.Wait()
		if len(told) != 0 {
			t.Error("told before the end")
		}
		<-time.After(1)
		synctest.Wait()
		select {
		case committed := <-told:
			if committed {
				t.Error("told of a commit")
			}
		default:
			t.Error("not told")
		}
		if err := tx.Commit(); !errors.Is(err, storage.ErrTxDone) {
			t.Errorf("commit: %v, want ErrTxDone", err)
		}
	})
}
