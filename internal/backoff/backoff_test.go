package backoff_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/backoff"
)

// TestWaitsGrowWithinBounds: doubling from Min to Max, half of it jitter, for
// ever, and from Min again after Reset.
func TestWaitsGrowWithinBounds(t *testing.T) {
	t.Parallel()
	for _, b := range []backoff.Backoff{
		{Min: 20 * time.Millisecond, Max: time.Second},
		{Min: time.Second, Max: time.Second},
		{Min: 5 * time.Hour, Max: 24 * time.Hour}, // shifted, it overflows
		{Min: time.Minute, Max: time.Second},
		{},
	} {
		for range 3 {
			want := b.Min
			for i := range 100 {
				want = min(want, b.Max)
				if d := b.Next(); d < want/2 || d > want {
					t.Fatalf("%v to %v, wait %d: %v, want %v to %v", b.Min, b.Max, i, d, want/2, want)
				}
				want *= 2
			}
			b.Reset()
		}
	}
}

func TestWaitsAreSpread(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 100 {
		b := backoff.Backoff{Min: time.Second, Max: time.Minute}
		seen[b.Next()] = true
	}
	if len(seen) < 90 {
		t.Errorf("%d different waits of 100: many would come at the same time", len(seen))
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if !backoff.Sleep(t.Context(), time.Second) || time.Since(begun) != time.Second {
			t.Errorf("slept %s, want 1s", time.Since(begun))
		}
		b := backoff.Backoff{Min: time.Hour, Max: time.Hour}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if b.Sleep(ctx) || time.Since(begun) != 2*time.Second {
			t.Errorf("slept on after its context had ended, until %s", time.Since(begun))
		}
	})
}
