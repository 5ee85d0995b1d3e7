package sqlqueue

import (
	"context"
	"time"

	"github.com/capbus/gocap/internal/backoff"
)

const (
	sweepInterval = 30 * time.Second
	// A sweep looks at sweepPages times sweepRows messages; the next one goes on
	// from there.
	sweepPages = 20
	sweepRows  = 1000
)

// sweepEvery is how often a receiver looks for messages that nobody needs: those
// too old for Config.MaxAge, those of groups that were dropped, and what a receiver
// left that was killed between its two looks (see receiver.ack).
func (c Config) sweepEvery() time.Duration {
	if c.MaxAge > 0 {
		return max(min(sweepInterval, c.MaxAge/4), c.Lease/4)
	}
	return sweepInterval
}

// sweepNowAndThen does so until the context ends. The lease is renewed meanwhile: a
// sweep may take long.
func (r *receiver) sweepNowAndThen(ctx context.Context) {
	for backoff.Sleep(ctx, r.cfg.sweepEvery()) {
		r.sweep(ctx)
	}
}

// sweep deletes what is too old, which comes first, however much it is. Then it looks
// at the next messages in their order.
func (r *receiver) sweep(ctx context.Context) {
	if !r.sweeping.CompareAndSwap(false, true) {
		return
	}
	defer r.sweeping.Store(false)
	deleted := int64(0)
	defer func() {
		if deleted > 0 {
			r.cfg.Logger.Warn("messages deleted that a group has not taken within Config.MaxAge", "transport", "sqlqueue", "count", deleted)
		}
	}()
	for from, more := int64(0), r.cfg.MaxAge > 0; more; {
		p, err := r.sweepPage(ctx, from)
		if err != nil {
			return // what cannot be reached now can be reached later
		}
		deleted += p.old
		from, more = p.last, p.old == sweepRows
	}
	for range sweepPages {
		p, err := r.sweepPage(ctx, r.swept.Load())
		if err != nil {
			return
		}
		deleted += p.old
		r.swept.Store(p.last)
		if p.rows < sweepRows {
			r.swept.Store(0) // from the start again
			return
		}
	}
}

// page is some messages in their order: the last seq, how many they are, and how many
// were deleted by age.
type page struct{ last, rows, old int64 }

// sweepPage deletes what nobody needs of the messages behind a seq.
func (r *receiver) sweepPage(ctx context.Context, from int64) (page, error) {
	t := r.tables
	res, err := r.column(ctx, `WITH page AS MATERIALIZED (
	SELECT seq, groups, $3::bigint > 0 AND added_at < clock_timestamp() - $3::bigint * interval '1 microsecond' AS old
	FROM `+t.messages+` WHERE seq > $1::bigint ORDER BY seq LIMIT $2::bigint
), needless AS MATERIALIZED (
	SELECT p.seq, p.groups, p.old FROM page p JOIN `+t.messages+` m ON m.seq = p.seq WHERE p.old OR NOT EXISTS (
		SELECT FROM unnest(p.groups) AS u JOIN `+t.groups+` g ON g.id = u JOIN `+t.deliveries+` d ON d.group_id = u AND d.seq = p.seq)
	FOR UPDATE OF m SKIP LOCKED
), gone AS (
	DELETE FROM `+t.messages+` m USING needless n WHERE m.seq = n.seq RETURNING n.old
), left_over AS (
	DELETE FROM `+t.deliveries+` d USING needless n, unnest(n.groups) AS u WHERE d.group_id = u AND d.seq = n.seq
)
SELECT coalesce(max(seq), 0) FROM page UNION ALL SELECT count(*) FROM page UNION ALL SELECT count(*) FROM gone WHERE old`,
		from, sweepRows, r.cfg.MaxAge.Microseconds())
	if err != nil || len(res) != 3 {
		return page{}, err
	}
	return page{last: res[0], rows: res[1], old: res[2]}, nil
}
