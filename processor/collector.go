package processor

import (
	"context"
	"log/slog"
	"time"

	"github.com/capbus/gocap/internal/backoff"
	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/storage"
)

// purgeTimeout bounds one batch; a database that hangs must not hang the rounds.
const purgeTimeout = time.Minute

// Collector deletes rows that are final and have expired. Its fields are
// required.
type Collector struct {
	Storage   storage.Storage
	Log       *quiet.Logger
	Version   string
	Interval  time.Duration // between rounds
	BatchSize int           // most rows deleted at once
	Trace     *Trace        // may be nil
}

// Run works until ctx ends. Batches follow each other at once while they come
// back full.
func (c *Collector) Run(ctx context.Context) {
	for {
		for _, box := range []storage.Box{storage.Outbox, storage.Inbox} {
			c.clean(ctx, box)
		}
		if !backoff.Sleep(ctx, c.Interval) {
			return
		}
	}
}

func (c *Collector) clean(ctx context.Context, box storage.Box) {
	for ctx.Err() == nil {
		pctx, cancel := context.WithTimeout(ctx, purgeTimeout)
		n, err := c.Storage.Purge(pctx, storage.Purge{Box: box, Version: c.Version, Limit: c.BatchSize})
		cancel()
		if err != nil && ctx.Err() == nil {
			c.Log.Warn(ctx, "expired rows not deleted", box.String(), slog.String("box", box.String()), slog.Any("err", err))
		}
		c.Trace.collected(ctx, c.Log, box, n)
		if err != nil || n < c.BatchSize {
			return
		}
	}
}
