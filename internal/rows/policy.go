package rows

import (
	"fmt"
	"time"

	"github.com/capbus/gocap/storage"
)

// Policy says when a failed row is tried again.
type Policy struct {
	Count       int // attempts in all
	Interval    time.Duration
	Immediate   int                             // failed attempts that are followed by another at once
	Backoff     func(attempt int) time.Duration // if it panics, Interval is used
	KeepFailed  time.Duration                   // until a final failed row expires
	OweCallback bool                            // a final failed row owes a callback
}

// Failed returns the outcome of a row whose attempt was answered with an error.
// A wait of 0 or more overrides the policy's.
func (p Policy) Failed(r *storage.Record, reason string, permanent bool, wait time.Duration) storage.Outcome {
	attempt := r.Retries + 1
	if permanent || attempt >= p.Count {
		return p.Final(r, reason, true)
	}
	switch {
	case wait >= 0:
	case p.Backoff != nil:
		wait, reason = p.backoff(attempt, reason)
	case attempt <= p.Immediate:
		wait = 0
	default:
		wait = p.Interval
	}
	return storage.Outcome{ID: r.ID, Kind: storage.Retry, Attempt: attempt, After: wait, Error: reason}
}

// backoff asks the user's function. What it panics with is added to the reason,
// so that it is seen with the row: the process must not die of it.
func (p Policy) backoff(attempt int, reason string) (wait time.Duration, why string) {
	defer func() {
		if v := recover(); v != nil {
			wait, why = p.Interval, fmt.Sprintf("%s (RetryBackoff panicked: %v)", reason, v)
		}
	}()
	return max(0, p.Backoff(attempt)), reason
}

// Final returns the outcome of a row that is not tried again.
func (p Policy) Final(r *storage.Record, reason string, counted bool) storage.Outcome {
	o := storage.Outcome{
		ID: r.ID, Kind: storage.Fail, Error: reason,
		After: p.KeepFailed, Callback: p.OweCallback,
	}
	if counted {
		o.Attempt = r.Retries + 1
	}
	return o
}
