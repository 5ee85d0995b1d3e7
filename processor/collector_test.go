package processor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
)

// purge is one call.
type purge struct {
	at  time.Time
	box storage.Box
}

// collect runs a collector on a storage whose Purge is f, for so long.
func collect(t *testing.T, log *lines, long time.Duration, f func(context.Context, storage.Purge) (int, error)) (calls []purge) {
	t.Helper()
	s := &spy{onPurge: func(ctx context.Context, p storage.Purge) (int, error) {
		if p.Version != "v1" || p.Limit != 1000 {
			t.Errorf("purge of %+v", p)
		}
		calls = append(calls, purge{time.Now(), p.Box})
		return f(ctx, p)
	}}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	c := &processor.Collector{Storage: s, Log: quietLog(log), Version: "v1", Interval: 5 * time.Minute, BatchSize: 1000}
	c.Run(ctx)
	return calls
}

// TestFullBatchesFollowAtOnce, until one is not full; then both tables rest.
func TestFullBatchesFollowAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left, begun := map[storage.Box]int{storage.Outbox: 3500, storage.Inbox: 2000}, time.Now()
		calls := collect(t, &lines{}, 11*time.Minute, func(_ context.Context, p storage.Purge) (int, error) {
			n := min(left[p.Box], p.Limit)
			left[p.Box] -= n
			return n, nil
		})
		at := map[time.Duration]map[storage.Box]int{}
		for _, c := range calls {
			d := c.at.Sub(begun)
			if at[d] == nil {
				at[d] = map[storage.Box]int{}
			}
			at[d][c.box]++
		}
		if first := at[0]; first[storage.Outbox] != 4 || first[storage.Inbox] != 3 {
			t.Errorf("first round: %v batches", first)
		}
		if len(at) != 3 || at[5*time.Minute][storage.Inbox] != 1 || at[10*time.Minute][storage.Outbox] != 1 {
			t.Errorf("rounds: %v", at)
		}
	})
}

// TestErrorsOfOneTableDoNotStopTheOther, and are not tried again at once.
func TestErrorsOfOneTableDoNotStopTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		calls := collect(t, log, time.Hour-time.Second, func(_ context.Context, p storage.Purge) (int, error) {
			if p.Box == storage.Outbox {
				return 0, errAway
			}
			return 0, nil
		})
		if len(calls) != 2*12 || log.count() != 12 {
			t.Errorf("%d calls and %d lines in an hour, want 24 and 12", len(calls), log.count())
		}
	})
}

func TestAPurgeThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := collect(t, &lines{}, time.Hour, func(ctx context.Context, p storage.Purge) (int, error) {
			if p.Box == storage.Outbox {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return 0, nil
		})
		if len(calls) < 18 {
			t.Errorf("%d calls in an hour: a purge that hangs stops all", len(calls))
		}
	})
}

// TestCollectorDeletesWhatHasExpired, and nothing else.
func TestCollectorDeletesWhatHasExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTables(t)
		list := s.publish(3, "a")
		if _, err := s.keeper.Current().Settle(t.Context(),
			storage.Outcome{ID: list[0], Kind: storage.Succeed, After: time.Minute},
			storage.Outcome{ID: list[1], Kind: storage.Succeed, After: time.Hour},
		); err != nil {
			t.Fatal(err)
		}
		c := &processor.Collector{Storage: s, Log: quietLog(s.log), Version: "v1", Interval: time.Minute, BatchSize: 10}
		s.background(c.Run)
		<-time.After(3 * time.Minute)
		if s.row(list[0]) != nil || s.row(list[1]) == nil || s.row(list[2]) == nil {
			t.Error("the wrong rows are left")
		}
	})
}
