package rows_test

import (
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

// TestAPanicOfRetryBackoffIsSeenAndKillsNothing: the wait is the ordinary one.
func TestAPanicOfRetryBackoffIsSeenAndKillsNothing(t *testing.T) {
	t.Parallel()
	var table map[int]time.Duration
	p := rows.Policy{Count: 5, Interval: time.Minute, Immediate: 2, Backoff: func(attempt int) time.Duration {
		table[attempt] = 0 // a map that was never made
		return 0
	}}
	o := p.Failed(&storage.Record{}, "no stock", false, -1)
	if o.Kind != storage.Retry || o.After != time.Minute || o.Attempt != 1 {
		t.Errorf("%+v, want a retry in a minute", o)
	}
	if !strings.HasPrefix(o.Error, "no stock") || !strings.Contains(o.Error, "RetryBackoff panicked: assignment to entry in nil map") {
		t.Errorf("the row says %q, want why it failed and the panic", o.Error)
	}
	if o := p.Failed(&storage.Record{}, "no stock", false, time.Second); o.After != time.Second || o.Error != "no stock" {
		t.Errorf("%+v, want the wait that was asked for, of the function nothing", o)
	}
}
