package processor_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
)

// taker is an engine with room for so many rows. It keeps what it gets until it
// is told to finish it.
type taker struct {
	*tables

	hand  rows.Hand
	retry *processor.NeedRetry
	freed chan struct{}

	mu     sync.Mutex
	window int
	got    []*storage.Record
	most   int // in hand at once
	done   map[string]int
	times  map[storage.ID]int
}

// newTaker runs a NeedRetry that feeds a taker, until the test ends.
func newTaker(t *testing.T, window int, adjust func(*processor.NeedRetryConfig)) *taker {
	t.Helper()
	k := &taker{tables: newTables(t), freed: make(chan struct{}, 1), window: window, done: map[string]int{}, times: map[storage.ID]int{}}
	cfg := processor.NeedRetryConfig{
		Keeper: k.keeper, Hand: &k.hand, Taker: k, Log: quietLog(k.log),
		PollInterval: time.Second, BatchSize: 500, MaxBytes: 8 << 20,
	}
	if adjust != nil {
		adjust(&cfg)
	}
	k.retry = processor.NewNeedRetry(cfg)
	return k
}

func (k *taker) run() { k.background(k.retry.Run) }

func (k *taker) Room() []storage.Lane {
	k.mu.Lock()
	defer k.mu.Unlock()
	free := k.window - k.hand.Len()
	if free < max(1, k.window/4) {
		return nil
	}
	return []storage.Lane{{Limit: free}}
}

func (k *taker) Admit(_ *rows.Tenure, recs []*storage.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.got = append(k.got, recs...)
	k.most = max(k.most, k.hand.Len())
}

func (k *taker) Freed() <-chan struct{} { return k.freed }

func (k *taker) resize(window int) {
	k.mu.Lock()
	k.window = window
	k.mu.Unlock()
	k.signal()
}

func (k *taker) signal() {
	select {
	case k.freed <- struct{}{}:
	default:
	}
}

// take returns what was admitted since the last call.
func (k *taker) take() []*storage.Record {
	k.mu.Lock()
	defer k.mu.Unlock()
	recs := k.got
	k.got = nil
	return recs
}

// finish settles rows and takes them out of the hand.
func (k *taker) finish(ctx context.Context, kind storage.OutcomeKind, after time.Duration, recs ...*storage.Record) {
	for _, rec := range recs {
		if _, err := k.keeper.Current().Settle(context.WithoutCancel(ctx), storage.Outcome{ID: rec.ID, Kind: kind, After: after}); err != nil {
			k.t.Error(err)
		}
		k.hand.Leave(rec.ID)
	}
	k.signal()
}

// finished returns how many rows of a topic are done; "": of all.
func (k *taker) finished(topic string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if topic == "" {
		return len(k.times)
	}
	return k.done[topic]
}

// works finishes what it gets, up to n rows every millisecond, until the test
// ends.
func (k *taker) works(n int) {
	k.background(func(ctx context.Context) {
		var queue []*storage.Record
		for ctx.Err() == nil {
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return
			}
			queue = append(queue, k.take()...)
			now := queue[:min(n, len(queue))]
			queue = queue[len(now):]
			k.mu.Lock()
			for _, rec := range now {
				k.done[rec.Topic]++
				k.times[rec.ID]++
			}
			k.mu.Unlock()
			k.finish(ctx, storage.Succeed, time.Hour, now...)
		}
	})
}
