package processor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
)

// TestRowsOfADeadInstanceAreTakenOverInTime: within its lease and 2 s.
func TestRowsOfADeadInstanceAreTakenOverInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newTaker(t, 2000, nil)
		k.run()
		k.strangers(10, "a") // lives for a second
		<-time.After(900 * time.Millisecond)
		if got := k.take(); len(got) != 0 {
			t.Errorf("%d rows of a living instance were taken", len(got))
		}
		<-time.After(2100 * time.Millisecond)
		got := k.take()
		if len(got) != 10 {
			t.Fatalf("%d rows were taken over, want 10", len(got))
		}
		for _, rec := range got {
			if rec.Takeovers != 1 || rec.Owner != k.keeper.Current().Number() {
				t.Errorf("taken with takeovers %d, owner %d", rec.Takeovers, rec.Owner)
			}
		}
	})
}

// TestALargeEstateIsTakenBatchByBatch: at full speed, and never more than there
// is room for, so that others get their share.
func TestALargeEstateIsTakenBatchByBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newTaker(t, 400, func(cfg *processor.NeedRetryConfig) { cfg.PollInterval, cfg.BatchSize = 10*time.Second, 100 })
		k.strangers(4000, "a")
		<-time.After(2 * time.Second)
		begun := time.Now()
		k.works(4)
		k.run()
		for k.finished("") < 4000 && time.Since(begun) < time.Minute {
			<-time.After(10 * time.Millisecond)
		}
		if d := time.Since(begun); d > 1100*time.Millisecond {
			t.Errorf("%d rows in %s, want 4000 in 1s: as fast as they are worked off", k.finished(""), d)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.most > 400 {
			t.Errorf("%d rows in hand, there is room for 400", k.most)
		}
	})
}

// TestOwnRowsAndOrphansShareTheRoom: a backlog of the one does not hold up the
// other, even if there is room for one row only.
func TestOwnRowsAndOrphansShareTheRoom(t *testing.T) {
	t.Parallel()
	for _, window := range []int{1, 2, 40} {
		synctest.Test(t, func(t *testing.T) {
			k := newTaker(t, window, nil)
			k.strangers(1000, "orphan")
			<-time.After(2 * time.Second)
			k.publish(1000, "own")
			k.works(1)
			k.run()
			for k.finished("own") < 300 || k.finished("orphan") < 300 {
				<-time.After(time.Millisecond)
				if k.finished("") >= 1200 {
					t.Fatalf("window %d: %d own and %d others were done, one waits for all of the other",
						window, k.finished("own"), k.finished("orphan"))
				}
			}
		})
	}
}

// TestRowsWithoutAnOwnerAreTaken: of programs that only publish.
func TestRowsWithoutAnOwnerAreTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newTaker(t, 100, nil)
		k.run()
		<-time.After(1500 * time.Millisecond)
		k.append(record("a", 0))
		<-time.After(time.Second)
		if got := k.take(); len(got) != 1 || got[0].Takeovers != 0 {
			t.Errorf("taken: %d", len(got))
		}
	})
}

// TestLargeBodiesAreReadAFewAtATime, and at once one after another: neither the
// memory nor the speed suffers.
func TestLargeBodiesAreReadAFewAtATime(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"own", "orphans"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := newTaker(t, 1000, func(cfg *processor.NeedRetryConfig) { cfg.MaxBytes, cfg.PollInterval = 1000, time.Minute })
				owner := int64(0)
				if who == "own" {
					owner = k.keeper.Current().Number()
				}
				recs := make([]*storage.Record, 100)
				for i := range recs {
					recs[i] = record("a", owner)
					recs[i].Body = make([]byte, 400)
				}
				k.append(recs...)
				k.run()
				<-time.After(time.Millisecond)
				if got := k.take(); len(got) != 100 {
					t.Errorf("%d of 100 rows were read at once", len(got))
				}
				for _, l := range k.seen() {
					if l.found > 3 {
						t.Errorf("%d rows of 400 bytes in one look of 1000", l.found)
					}
				}
			})
		})
	}
}

// TestOwnRowsAreReadThoughTakingOverFails: the two are different statements.
func TestOwnRowsAreReadThoughTakingOverFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newTaker(t, 100, nil)
		k.fail(func(_ context.Context, q storage.Query) error {
			if q.Lanes[0].Limit < 100 { // half of the room
				return errAway
			}
			return nil
		})
		k.publish(1, "a")
		k.run()
		<-time.After(time.Millisecond)
		if got := k.take(); len(got) != 1 {
			t.Errorf("%d rows, want 1", len(got))
		}
		if k.log.count() == 0 {
			t.Error("the error was not logged")
		}
	})
}

// TestNothingIsReadWithoutRoom, and as soon as there is some the work goes on.
func TestNothingIsReadWithoutRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newTaker(t, 0, func(cfg *processor.NeedRetryConfig) { cfg.PollInterval = time.Minute })
		k.publish(10, "a")
		k.strangers(10, "a")
		k.run()
		<-time.After(10 * time.Minute)
		if n := len(k.seen()); n != 0 {
			t.Errorf("%d looks without room", n)
		}
		k.resize(100)
		<-time.After(time.Millisecond)
		if got := k.take(); len(got) != 20 {
			t.Errorf("%d rows when there was room, want 20", len(got))
		}
	})
}

// TestRowsInHandDoNotHideThoseBehindThem: more than a batch of them stand first
// in the order.
func TestRowsInHandDoNotHideThoseBehindThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newTaker(t, 1000, func(cfg *processor.NeedRetryConfig) { cfg.BatchSize = 50 })
		k.publish(700, "stuck")
		k.run()
		<-time.After(time.Second)
		if got := k.take(); len(got) != 700 {
			t.Fatalf("%d rows in hand, want 700", len(got))
		}
		k.publish(20, "behind")
		<-time.After(1100 * time.Millisecond)
		if got := k.take(); len(got) != 20 {
			t.Errorf("%d rows from behind, want 20", len(got))
		}
	})
}
