package mysql_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// TestOverlappingBatches of eight who accept, settle and purge at once: no
// error, and each message is new to one of them.
func TestOverlappingBatches(t *testing.T) {
	t.Parallel()
	const accepters, messages, rounds = 8, 60, 6
	s := newStore(t)
	fresh := make([]map[string]int, accepters)
	var wg sync.WaitGroup
	for i := range accepters {
		m := join(t, s, storage.Inbox)
		fresh[i] = map[string]int{}
		wg.Go(func() {
			for round := range rounds {
				if err := acceptAndSettle(t, m, i, round*messages, messages, fresh[i]); err != nil {
					t.Error(err)
					return
				}
				if _, err := s.Purge(t.Context(), storage.Purge{Box: storage.Inbox, Version: version, Limit: 50}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	times := map[string]int{}
	for _, f := range fresh {
		for id, n := range f {
			times[id] += n
		}
	}
	for id, n := range times {
		if n != 1 {
			t.Errorf("message %s was new %d times", id, n)
		}
	}
	if len(times) != messages*rounds {
		t.Errorf("%d messages were new, want %d", len(times), messages*rounds)
	}
}

// acceptAndSettle takes the messages in another order than the others do.
func acceptAndSettle(t *testing.T, m storage.Member, who, first, n int, fresh map[string]int) error {
	t.Helper()
	var recs []*storage.Record
	for j := range n {
		recs = append(recs, incoming(strconv.Itoa(first+(j*7+who*11)%n)))
	}
	got, err := m.Accept(t.Context(), recs...)
	if err != nil {
		return err
	}
	var outcomes []storage.Outcome
	for k, r := range got {
		fresh[r.MessageID]++
		o := storage.Outcome{ID: r.ID, Kind: storage.Succeed, After: time.Hour}
		if k%3 == 0 {
			o = storage.Outcome{ID: r.ID, Kind: storage.Retry, Attempt: 1, Error: "no"}
		}
		outcomes = append(outcomes, o)
	}
	_, err = m.Settle(t.Context(), outcomes...)
	return err
}

// TestOnlyOneTakesARow of many who look for orphans at once.
func TestOnlyOneTakesARow(t *testing.T) {
	t.Parallel()
	const takers, rows = 8, 400
	s := newStore(t)
	gone := join(t, s, storage.Outbox)
	recs := make([]*storage.Record, rows)
	for i := range recs {
		recs[i] = outgoing(gone.Number())
	}
	publish(t, s, recs...)
	must(t, gone.Leave(t.Context()))
	taken := make([][]*storage.Record, takers)
	var wg sync.WaitGroup
	for i := range takers {
		m := join(t, s, storage.Outbox)
		wg.Go(func() {
			for range 40 {
				got, err := m.TakeOver(t.Context(), outLane(20))
				if err != nil {
					t.Error(err)
				}
				taken[i] = append(taken[i], got...)
			}
		})
	}
	wg.Wait()
	owners := map[storage.ID]int{}
	for _, list := range taken {
		for _, r := range list {
			owners[r.ID]++
		}
	}
	for id, n := range owners {
		if n != 1 {
			t.Errorf("row %s was taken %d times", id, n)
		}
	}
	if len(owners) != rows {
		t.Errorf("%d rows of %d were taken", len(owners), rows)
	}
}

// TestManyDeadOwners, and instances of other versions between them, are found.
func TestManyDeadOwners(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	m := join(t, s, storage.Outbox)
	var recs []*storage.Record
	for i := range 90 {
		in := storage.Instance{Box: storage.Outbox, Version: version, Lease: time.Minute}
		if i%3 == 0 {
			in.Version = "v2"
		}
		other, err := s.Join(t.Context(), in)
		must(t, err)
		rec := outgoing(other.Number())
		if i%3 == 1 {
			must(t, other.Leave(t.Context()))
			recs = append(recs, rec)
		}
		publish(t, s, rec)
	}
	recs = append(recs, outgoing(ids.Number()), outgoing(0)) // of an owner that is forgotten, and of nobody
	publish(t, s, recs[len(recs)-2:]...)
	got, err := m.TakeOver(t.Context(), outLane(200))
	must(t, err)
	if len(got) != len(recs) {
		t.Errorf("%d rows were taken over, want %d", len(got), len(recs))
	}
}

// TestTwoJoinAtOnce with different destinations: one is refused.
func TestTwoJoinAtOnce(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for round := range 10 {
		errs := make([]error, 4)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = joinAs(t, s, "v"+strconv.Itoa(round), "exchange-"+strconv.Itoa(i)) })
		}
		wg.Wait()
		joined := 0
		for _, err := range errs {
			if err == nil {
				joined++
			}
		}
		if joined != 1 {
			t.Errorf("%d of four with different destinations have joined: %v", joined, errs)
		}
	}
}

func joinAs(t *testing.T, s *gormstore.Store, version, destination string) error {
	t.Helper()
	_, err := s.Join(t.Context(), storage.Instance{
		Box: storage.Outbox, Version: version, Lease: time.Minute, Transport: "rabbitmq", Destination: destination,
	})
	return err
}
