package sqlqueue

import (
	"context"
	"time"
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
		return min(sweepInterval, c.MaxAge/4)
	}
	return sweepInterval
}

// sweep looks at the next messages in their order.
func (r *receiver) sweep(ctx context.Context) {
	if !r.sweeping.CompareAndSwap(false, true) {
		return
	}
	defer r.sweeping.Store(false)
	for range sweepPages {
		more, err := r.sweepPage(ctx)
		if err != nil || !more {
			return // what cannot be reached now can be reached later
		}
	}
}

// sweepPage deletes what nobody needs of the next messages. It reports whether
// there are more.
func (r *receiver) sweepPage(ctx context.Context) (bool, error) {
	t := r.tables
	// The rows: the last seq of the page, its length, messages deleted by age.
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
		r.swept.Load(), sweepRows, r.cfg.MaxAge.Microseconds())
	if err != nil || len(res) != 3 {
		return false, err
	}
	if res[2] > 0 {
		r.cfg.Logger.Warn("messages deleted that a group has not taken within Config.MaxAge", "transport", "sqlqueue", "count", res[2])
	}
	r.swept.Store(res[0])
	if res[1] < sweepRows {
		r.swept.Store(0) // from the start again
		return false, nil
	}
	return true, nil
}
