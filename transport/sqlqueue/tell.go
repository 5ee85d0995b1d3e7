package sqlqueue

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/capbus/gocap/internal/backoff"
)

// maxAnswers bounds one statement.
const maxAnswers = 1000

// tellAll stores answers until the receiver has ended, and then the last of them.
func (r *receiver) tellAll(ctx context.Context, end <-chan struct{}) {
	for {
		select {
		case <-r.hand.tell:
			if _, err := r.tell(ctx); err != nil {
				r.lose(unavailable(err))
			}
		case <-end:
			for more := true; more; {
				var err error
				if more, err = r.tell(ctx); err != nil {
					return // they come again
				}
			}
			return
		}
	}
}

// tell stores the next answers. It reports whether there were any.
func (r *receiver) tell(ctx context.Context) (bool, error) {
	acks, nacks := r.hand.take(maxAnswers)
	var err error
	if len(acks) > 0 {
		err = again(func() error { return r.ack(ctx, acks) })
	}
	if len(nacks) > 0 && err == nil {
		err = again(func() error { return r.nack(ctx, nacks) })
	}
	return len(acks)+len(nacks) > 0, err
}

// again repeats a statement that does no harm when it is run twice, if the server
// took it back because of others (a deadlock) or the connection had gone while it
// was idle.
func again(f func() error) error {
	var err error
	for range 3 {
		if err = f(); err == nil {
			break
		}
		if s := sqlState(err); !strings.HasPrefix(s, "40") && !strings.HasPrefix(s, "57") && !pgconn.SafeToRetry(err) {
			break
		}
	}
	return err
}

// ack deletes deliveries, and the messages that have no other one. Two groups that
// ack the same message at once each see the delivery of the other: so messages
// that seem to be needed are looked at once more, after the commit. Whoever
// commits last then finds no delivery.
//
// An ack that a crash of the server takes back lets the message come again, as one
// that did not arrive: so nobody waits for the disk.
func (r *receiver) ack(ctx context.Context, seqs []int64) error {
	t := r.tables
	left, err := r.column(ctx, `WITH gone AS (
	DELETE FROM `+t.deliveries+` WHERE group_id = $1 AND seq = ANY ($3::bigint[]) AND receiver = $2
		AND (SELECT set_config('synchronous_commit', 'off', true)) = 'off' RETURNING seq
), done AS (
	DELETE FROM `+t.messages+` m USING gone WHERE m.seq = gone.seq AND NOT EXISTS (
		SELECT FROM unnest(m.groups) AS g JOIN `+t.deliveries+` d ON d.group_id = g AND d.seq = m.seq WHERE g <> $1)
	RETURNING m.seq
)
SELECT seq FROM gone EXCEPT ALL SELECT seq FROM done`, r.group.id, r.id, seqs)
	if err != nil || len(left) == 0 {
		return err
	}
	_, err = r.exec(ctx, `DELETE FROM `+t.messages+` WHERE seq IN (
	SELECT m.seq FROM `+t.messages+` m WHERE m.seq = ANY ($1::bigint[])
		AND (SELECT set_config('synchronous_commit', 'off', true)) = 'off'
		AND NOT EXISTS (SELECT FROM unnest(m.groups) AS g JOIN `+t.deliveries+` d ON d.group_id = g AND d.seq = m.seq)
	FOR UPDATE SKIP LOCKED)`, left)
	return err
}

// nack frees deliveries, after their waits.
func (r *receiver) nack(ctx context.Context, nacks []nack) error {
	seqs, waits := make([]int64, len(nacks)), make([]int64, len(nacks))
	soonest := nacks[0].after
	for i, n := range nacks {
		seqs[i], waits[i] = n.seq, n.after.Microseconds()
		soonest = min(soonest, n.after)
	}
	_, err := r.exec(ctx, `UPDATE `+r.tables.deliveries+` d
	SET receiver = NULL, due_at = clock_timestamp() + n.wait * interval '1 microsecond'
	FROM unnest($3::bigint[], $4::bigint[]) AS n(seq, wait) WHERE d.group_id = $1 AND d.seq = n.seq AND d.receiver = $2`,
		r.group.id, r.id, seqs, waits)
	if err != nil {
		return err
	}
	at := time.Now().Add(soonest + time.Millisecond)
	r.mu.Lock()
	if r.nacked.IsZero() || at.Before(r.nacked) {
		r.nacked = at
	}
	r.mu.Unlock()
	signal(r.wake)
	return nil
}

// beat renews the lease, until the context ends or the lease is lost.
func (r *receiver) beat(ctx context.Context) {
	for backoff.Sleep(ctx, r.cfg.Lease/4) {
		if !r.renew(ctx) {
			if ctx.Err() == nil {
				r.lose(errLeaseLost)
			}
			return
		}
	}
}

// renew tries for as long as the lease lasts. A lease that has run out is not
// renewed, because others may have been active since.
func (r *receiver) renew(ctx context.Context) bool {
	wait := backoff.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
	for r.living() && ctx.Err() == nil {
		sent := time.Now()
		try, cancel := context.WithTimeout(ctx, r.cfg.Lease/4)
		n, err := r.exec(try, `UPDATE `+r.tables.receivers+` SET lives_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
	WHERE id = $1 AND lives_until > clock_timestamp()`, r.id, r.cfg.Lease.Microseconds())
		cancel()
		if err == nil && n == 1 {
			r.renewed(sent)
			return true
		}
		if err == nil {
			return false
		}
		wait.Sleep(ctx)
	}
	return false
}
