package sqlqueue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/internal/wire"
	"github.com/capbus/gocap/transport"
)

const (
	// firstPause is the wait after a look that found something; it doubles up to
	// Config.PollInterval.
	firstPause = 5 * time.Millisecond
	// maxTake bounds what one look takes, in messages and in bytes.
	maxTake      = 500
	maxTakeBytes = 8 << 20
	// maxFailed bounds the looks in a row that fail without an end of the receiver.
	maxFailed = 3
	// gather is how long a look waits for more room when there is little.
	gather = 2 * time.Millisecond
)

// looks is what Watermill's Subscriber asks of a receiver: the statement of a
// look (it is the wmsql.SchemaAdapter), the wait for the next one
// (wmsql.BackoffManager), and where to log (watermill.LoggerAdapter). All of it
// runs in the Subscriber's one goroutine.
//
// The Subscriber hands messages out one by one in the transaction of the look, and
// waits for the answer to each. Here each is acked when it comes, because the
// select has taken it already. What was taken is passed on once HandleError is
// called, which is after the commit.
type looks struct {
	schema

	r    *receiver
	done <-chan struct{} // the receiver ends

	limit   int       // of the look that is next, or under way
	from    int64     // it takes what is behind that
	began   time.Time // when
	timer   *time.Timer
	taken   []*delivery
	failure error // of the commit: the Subscriber only logs it
	failed  int   // looks in a row

	last     int64     // highest seq that was taken
	full     time.Time // when the last look from the start began
	nextFull time.Time // when the next one may
	pause    time.Duration
	again    time.Time // when what was given back with a wait is due
}

var (
	_ wmsql.SchemaAdapter     = (*looks)(nil)
	_ wmsql.BackoffManager    = (*looks)(nil)
	_ watermill.LoggerAdapter = (*looks)(nil)
)

// InsertQuery is for publishers.
func (*looks) InsertQuery(string, message.Messages) (wmsql.Query, error) { return wmsql.Query{}, nil }

// SelectQuery takes deliveries. A receiver that is not living takes nothing, and
// in an ordered group nobody but the oldest one. What a receiver that is not
// living has is free.
func (l *looks) SelectQuery(string, string, wmsql.OffsetsAdapter) wmsql.Query {
	t := l.tables
	locked := "SKIP LOCKED"
	if l.r.group.ordered {
		locked = "" // what a receiver that was lost is just taking comes first
	}
	return wmsql.Query{
		Query: `WITH living AS MATERIALIZED (
	SELECT id FROM ` + t.receivers + ` WHERE group_id = $1 AND lives_until > clock_timestamp()
), free AS (
	SELECT group_id, seq, size FROM ` + t.deliveries + `
	WHERE group_id = $1 AND seq > $3::bigint AND (due_at IS NULL OR due_at <= statement_timestamp())
		AND (receiver IS NULL OR receiver <> ALL (ARRAY(SELECT id FROM living)))
		AND (SELECT CASE WHEN g.ordered THEN (SELECT min(id) FROM living) = $2 ELSE $2 IN (SELECT id FROM living) END
			FROM ` + t.groups + ` g WHERE g.id = $1)
	ORDER BY group_id, seq LIMIT $4::bigint FOR UPDATE ` + locked + `
), fit AS (
	SELECT group_id, seq FROM (SELECT *, sum(size::bigint) OVER (ORDER BY seq) - size AS before FROM free) s WHERE before < $5::bigint
), took AS (
	UPDATE ` + t.deliveries + ` d SET receiver = $2::bigint FROM fit WHERE d.group_id = fit.group_id AND d.seq = fit.seq RETURNING d.seq
)
SELECT seq, topic, message_id, headers, body FROM took JOIN ` + t.messages + ` USING (seq)`,
		Args: unprepared([]any{l.r.group.id, l.r.id, l.from, l.limit, maxTakeBytes}),
	}
}

// beginner begins the transactions of looks.
type beginner struct{ *sql.DB }

// BeginTx tells the server what is good for a look. It walks along an index and
// stops: a plan that sorts the backlog first, as it suits a table that was small
// when it was last analyzed, would make a backlog slower with its size. And taking
// need not survive a crash of the server, as no receiver would either, so nobody
// waits for the disk.
func (b beginner) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	tx, err := b.DB.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, `SELECT set_config(name, 'off', true) FROM unnest(ARRAY['synchronous_commit', 'jit',
	'enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin']) AS name`, unprepared(nil)...)
	if err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// UnmarshalMessage keeps a delivery. Without an Offset the Subscriber writes
// nothing more before it commits.
func (l *looks) UnmarshalMessage(row wmsql.Scanner) (wmsql.Row, error) {
	d := &delivery{hand: l.r.hand, msg: &transport.Message{}}
	var headers []byte
	if err := row.Scan(&d.seq, &d.msg.Topic, &d.msg.ID, &headers, &d.msg.Body); err != nil {
		return wmsql.Row{}, err
	}
	var err error
	if d.msg.Headers, err = wire.DecodeHeaders(headers); err != nil {
		d.msg.Headers = map[string]string{} // written by another hand; an error would stop the group
	}
	l.taken = append(l.taken, d)
	return wmsql.Row{Msg: message.NewMessage(d.msg.ID, nil)}, nil
}

// begin sets the next look up: it takes at most half of the window, so that there
// is one to take while the other is being stored. A look that takes too long ends
// the receiver.
func (l *looks) begin(room int) {
	now := time.Now()
	l.limit, l.from, l.began = min(room, maxTake, (l.r.window+1)/2), l.last, now
	if l.last == 0 || !now.Before(l.nextFull) && (l.pause > 0 || now.Sub(l.full) >= l.r.cfg.PollInterval) {
		l.from, l.full = 0, now
	}
	if !l.again.IsZero() && !now.Before(l.again) {
		l.from, l.full, l.again = 0, now, time.Time{}
	}
	l.timer = time.AfterFunc(l.r.cfg.RequestTimeout, func() { l.r.lose(errNoAnswer) })
}

// HandleError is called when a look is over: it passes on what was taken, and
// returns when it is time for the next one. A look that failed before its commit
// has taken nothing, and is made again a few times, as the connection may have
// gone while it was idle. After a commit that failed nobody knows.
func (l *looks) HandleError(_ watermill.LoggerAdapter, _ bool, err error) time.Duration {
	l.timer.Stop()
	taken, commit := l.taken, l.failure
	l.taken, l.failure = nil, nil
	switch {
	case err == nil && commit != nil:
		l.r.lose(unavailable(commit))
	case err == nil:
		l.failed = 0
	default:
		taken = nil
		if l.failed++; l.failed > maxFailed || sqlState(err) == undefinedTable {
			l.r.lose(lasting(l.r.failed(err))) // unless it ends, which is why
		}
	}
	select {
	case <-l.done:
		return time.Hour // the Subscriber ends
	default:
	}
	slices.SortFunc(taken, func(a, b *delivery) int { return cmp.Compare(a.seq, b.seq) })
	if n := len(taken); n > 0 {
		l.last = max(l.last, taken[n-1].seq)
		l.r.pass(taken)
	}
	if l.from == 0 { // looks from the start take at most a tenth of the time
		l.nextFull = time.Now().Add(9 * time.Since(l.began))
	}
	l.wait(len(taken))
	return 0
}

// wait returns when there is room and a reason to look, or the receiver ends.
func (l *looks) wait(found int) {
	switch {
	case found == l.limit:
		l.pause = 0 // there may be more
	case found > 0 || l.pause == 0:
		l.pause = firstPause
	default:
		l.pause = min(2*l.pause, l.r.cfg.PollInterval)
	}
	if l.pause > 0 {
		l.sleep()
	}
	for {
		room := l.r.hand.free(l.r.window)
		if room > 0 && room < l.r.window/4 {
			l.until(nil, gather)
			room = l.r.hand.free(l.r.window)
		}
		if room > 0 {
			l.begin(room)
			return
		}
		select {
		case <-l.r.hand.room:
		case <-l.done:
			return
		}
	}
}

// sleep waits for the pause, for a message sent here, or for one that is to come
// again.
func (l *looks) sleep() {
	pause := l.pause
	if at := l.r.nackedUntil(); !at.IsZero() {
		l.again = at
	}
	if !l.again.IsZero() {
		pause = min(pause, max(time.Until(l.again), 0))
	}
	if l.until(l.r.wake, pause) {
		l.pause = firstPause
	}
}

// until reports whether a token came within d.
func (l *looks) until(token <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-token:
		return true
	case <-t.C:
	case <-l.done:
	}
	return false
}

// Error keeps what the Subscriber only logs: that the commit has failed.
func (l *looks) Error(_ string, err error, _ watermill.LogFields) { l.failure = cmp.Or(l.failure, err) }

// Info, Debug and Trace log nothing; With returns the same.
func (*looks) Info(string, watermill.LogFields)  {}
func (*looks) Debug(string, watermill.LogFields) {}
func (*looks) Trace(string, watermill.LogFields) {}

func (l *looks) With(watermill.LogFields) watermill.LoggerAdapter { return l }
