// Package backoff computes the waits between tries.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff grows from Min to Max by doubling; each wait has half of it as
// jitter. The zero value of the counter is the first wait. Not safe for
// concurrent use.
type Backoff struct {
	Min, Max time.Duration

	tries int
}

// Next returns the next wait.
func (b *Backoff) Next() time.Duration {
	d := b.Min << min(b.tries, 20)
	if d > b.Max || d <= 0 {
		d = b.Max
	}
	b.tries++
	return d/2 + rand.N(d/2+1) //nolint:gosec // jitter needs no secrecy
}

// Reset starts again at Min.
func (b *Backoff) Reset() { b.tries = 0 }

// Sleep waits for the next wait, or until ctx ends. It reports whether it
// waited in full.
func (b *Backoff) Sleep(ctx context.Context) bool { return Sleep(ctx, b.Next()) }

// Sleep waits for d, or until ctx ends. It reports whether it waited in full.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
