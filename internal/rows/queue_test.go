package rows_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

func unlimited(string) int { return 1000 }

func row(topic string, n, retries int) *rows.Row {
	return &rows.Row{Record: &storage.Record{ID: idOf(n), Topic: topic, Retries: retries}}
}

func next(t *testing.T, q *rows.Queue[string], n int) (string, []*rows.Row) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	key, rs, ok := q.Next(ctx, n)
	if !ok {
		return "", nil
	}
	return key, rs
}

func TestLinesTakeTurns(t *testing.T) {
	t.Parallel()
	q := rows.NewQueue(unlimited)
	for i := range 1000 {
		q.Add("long", row("long", i, 0))
	}
	q.Add("short", row("short", 1000, 0))
	for i := range 2 {
		if key, _ := next(t, q, 10); key == "short" {
			return
		} else if i == 1 {
			t.Error("a line waits behind all of another")
		}
	}
}

// TestFailingRowsDoNotHoldUpFreshOnes: nor the other way round.
func TestFailingRowsDoNotHoldUpFreshOnes(t *testing.T) {
	t.Parallel()
	q := rows.NewQueue(unlimited)
	for i := range 100 {
		q.Add("a", row("a", i, 3))
	}
	for i := range 100 {
		q.Add("a", row("a", 100+i, 0))
	}
	for start := 0; start < 200; start += 20 {
		_, rs := next(t, q, 20)
		again := 0
		for _, r := range rs {
			again += min(r.Retries, 1)
		}
		if again != 10 {
			t.Fatalf("from %d on: %d of 20 were tried before, want half", start, again)
		}
	}
}

func TestALineIsInOrder(t *testing.T) {
	t.Parallel()
	q := rows.NewQueue(unlimited)
	for i := range 50 {
		q.Add("a", row("a", i, 0))
	}
	for i := 0; i < 50; i += 7 {
		_, rs := next(t, q, 7)
		for j, r := range rs {
			if want := row("a", i+j, 0).ID; r.ID != want {
				t.Fatalf("%d-th row is %v, want %v", i+j, r.ID, want)
			}
		}
	}
}

func TestALineHasNoMoreRunsThanItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := rows.NewQueue(func(key string) int { return map[string]int{"two": 2, "none": 0}[key] })
		for i := range 10 {
			q.Add("two", row("two", i, 0))
			q.Add("none", row("none", 100+i, 0))
		}
		runs := map[string]int{}
		for range 3 {
			key, _ := next(t, q, 1)
			runs[key]++
		}
		if runs["two"] != 2 || runs["none"] != 1 { // a limit below 1 would stall the line
			t.Errorf("runs: %v", runs)
		}
		if key, rs := next(t, q, 1); rs != nil {
			t.Errorf("a further run of %q", key)
		}
		got := make(chan string)
		go func() {
			key, _ := next(t, q, 1)
			got <- key
		}()
		synctest.Wait()
		q.Done("two")
		if key := <-got; key != "two" {
			t.Errorf("after the end of a run: %q", key)
		}
	})
}

// TestABatchIsOfOneTenure: rows of different numbers cannot be sent under one.
func TestABatchIsOfOneTenure(t *testing.T) {
	t.Parallel()
	q := rows.NewQueue(unlimited)
	old, fresh := &rows.Tenure{}, &rows.Tenure{}
	for i := range 10 {
		r := row("a", i, i%2)
		if r.Tenure = old; i >= 4 {
			r.Tenure = fresh
		}
		q.Add("a", r)
	}
	total := 0
	for total < 10 {
		_, rs := next(t, q, 10)
		if len(rs) == 0 {
			t.Fatalf("%d rows came, want 10", total)
		}
		for _, r := range rs {
			if r.Tenure != rs[0].Tenure {
				t.Fatal("two tenures in one batch")
			}
		}
		total += len(rs)
	}
}

func TestNextEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := rows.NewQueue(unlimited)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, rs, ok := q.Next(ctx, 1); ok || rs != nil {
					t.Error("rows after the end")
				}
			})
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		q.Add("a", row("a", 1, 0))
		if _, _, ok := q.Next(ctx, 1); ok {
			t.Error("rows though the context has ended")
		}
	})
}

// TestAWaitThatEndsPassesTheRowOn: a wake-up that was meant for it is not lost.
func TestAWaitThatEndsPassesTheRowOn(t *testing.T) {
	t.Parallel()
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			q := rows.NewQueue(unlimited)
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan bool, 2)
			go func() {
				_, rs, _ := q.Next(ctx, 1)
				got <- len(rs) == 1
			}()
			synctest.Wait()
			go func() {
				_, rs := next(t, q, 1)
				got <- len(rs) == 1
			}()
			synctest.Wait()
			var wg sync.WaitGroup
			wg.Go(cancel)
			wg.Go(func() { q.Add("a", row("a", 1, 0)) })
			wg.Wait()
			if first, second := <-got, <-got; first == second {
				t.Fatalf("taken by both or by none: %v", first)
			}
		})
	}
}

func TestEmptyTakesAllThatWaits(t *testing.T) {
	t.Parallel()
	q := rows.NewQueue(unlimited)
	for i := range 30 {
		key := fmt.Sprint(i % 3)
		q.Add(key, row(key, i, i%2))
	}
	key, rs := next(t, q, 4)
	if rest := q.Empty(); len(rest) != 26 || len(rs) != 4 {
		t.Errorf("%d rows were left and %d taken", len(rest), len(rs))
	}
	if rest := q.Empty(); len(rest) != 0 {
		t.Errorf("%d rows in an empty queue", len(rest))
	}
	q.Done(key)
	q.Add(key, row(key, 99, 0))
	if _, rs := next(t, q, 4); len(rs) != 1 {
		t.Error("the queue is of no use after Empty")
	}
}

// TestQueueUnderLoad: every row comes once, no limit is exceeded, whoever adds
// and takes.
func TestQueueUnderLoad(t *testing.T) {
	t.Parallel()
	const keys, each, limit = 7, 500, 3
	q := rows.NewQueue(func(string) int { return limit })
	var mu sync.Mutex
	seen, running := map[storage.ID]int{}, map[string]int{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var takers, adders sync.WaitGroup
	for range 12 {
		takers.Go(func() {
			for {
				key, rs, ok := q.Next(ctx, 5)
				if !ok {
					return
				}
				mu.Lock()
				running[key]++
				if running[key] > limit {
					t.Errorf("%d runs of %s at once", running[key], key)
				}
				for _, r := range rs {
					if seen[r.ID]++; r.Topic != key {
						t.Errorf("a row of %s came in line %s", r.Topic, key)
					}
				}
				done := len(seen) == keys*each
				mu.Unlock()
				mu.Lock()
				running[key]--
				mu.Unlock()
				q.Done(key)
				if done {
					cancel()
				}
			}
		})
	}
	for k := range keys {
		adders.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(k), 4)) //nolint:gosec // repeatable on purpose
			for i := range each {
				key := fmt.Sprint(k)
				q.Add(key, row(key, k*each+i, rng.IntN(2)))
			}
		})
	}
	adders.Wait()
	takers.Wait()
	for id, n := range seen {
		if n != 1 {
			t.Errorf("row %v came %d times", id, n)
		}
	}
}
