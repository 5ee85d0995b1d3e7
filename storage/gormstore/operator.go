package gormstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

var _ storage.Operator = (*Store)(nil)

// How much a call looks at.
const (
	firstWindow = 512    // rows of its first look
	mostLooked  = 20_000 // rows in all
	dueMost     = 10_000 // unfinished rows that are sorted; where there are more, a listing walks by seq
	mostLanes   = 300    // in which a message id is looked for one by one

	// skew is how far the order of seq may be from that of added_at: clocks step.
	skew = time.Minute
)

func (s *Store) operating(b storage.Box) opSQL { return opSQL{s.d.operating(b), b} }

// List implements storage.Operator. Content is read by a second statement, so
// rows that go away meanwhile are left out.
func (s *Store) List(ctx context.Context, f storage.Filter, p storage.Page) (l storage.Listing, err error) {
	if err := cmp.Or(s.err, f.Validate(), p.Validate()); err != nil {
		return l, err
	}
	err = s.untilFree(ctx, func() (err error) {
		l, err = s.list(ctx, f, p)
		return err
	})
	if err != nil {
		return storage.Listing{}, fmt.Errorf("gormstore: list %s: %w", f.Box, err)
	}
	return l, nil
}

func (s *Store) list(ctx context.Context, f storage.Filter, p storage.Page) (storage.Listing, error) {
	v, none, err := s.view(ctx, f, p)
	if err != nil || none {
		return storage.Listing{}, err
	}
	var l storage.Listing
	for left := mostLooked; ; {
		v.window, v.limit = min(v.window, left), p.Limit-len(l.Rows)
		looked, last, err := s.look(ctx, v, &l.Rows)
		switch {
		case err != nil:
			return l, err
		case len(l.Rows) == p.Limit:
			l.Next = l.Rows[p.Limit-1].Position.Seq
		case looked < v.window:
		case left == looked:
			l.Next = last
		default:
			left -= looked
			v.window *= 4
			v.goOn(last)
			continue
		}
		if p.Content {
			err = s.fill(ctx, f.Box, &l)
		}
		return l, err
	}
}

func (v *view) goOn(after int64) {
	if v.oldest {
		v.low = max(v.low, after)
	} else {
		v.high = min(v.high, after)
	}
}

// view decides where to look; none: there can be nothing.
func (s *Store) view(ctx context.Context, f storage.Filter, p storage.Page) (v view, none bool, err error) {
	v = view{f: f, low: 0, high: math.MaxInt64, oldest: p.Oldest, window: max(firstWindow, p.Limit)}
	if p.After > 0 {
		v.goOn(p.After)
	}
	if f.Box == storage.Outbox && f.MessageID != "" {
		id, err := storage.ParseID(f.MessageID)
		if err != nil || len(f.IDs) > 0 && !slices.Contains(f.IDs, id) {
			return v, true, nil //nolint:nilerr // there is no row of another id
		}
		v.f.IDs = []storage.ID{id}
	}
	switch unfinished, held := kinds(f.States); {
	case len(v.f.IDs) > 0:
		v.src = inIDs
	case f.MessageID != "":
		v.keys, err = s.lanes(ctx)
		if v.src = inMessages; len(v.keys) == 0 {
			v.src = inAll
		}
	case held:
		v.src = inHeld
	case unfinished:
		v.src, v.in, err = s.unfinished(ctx, f)
	}
	if err == nil && (v.src == inAll || v.src == inHeld) {
		err = s.bound(ctx, &v)
	}
	return v, false, err
}

// unfinished looks whether there are few of such rows, and in what parts of the
// indexes.
func (s *Store) unfinished(ctx context.Context, f storage.Filter) (source, parts, error) {
	in, err := s.d.apart(ctx, s.reader, f.Box, f.Version)
	if err != nil {
		return inDue, in, err
	}
	n, err := readAll[int](ctx, s.reader, s.operating(f.Box).dueCount(in))
	if err == nil && n[0] > dueMost {
		return inAll, parts{}, nil
	}
	return inDue, in, err
}

// kinds tells whether all of the states are of rows that are not final, and
// whether all have an index of their own.
func kinds(states []storage.State) (unfinished, held bool) {
	unfinished, held = len(states) > 0, len(states) > 0
	for _, st := range states {
		unfinished = unfinished && st <= storage.StateRetrying
		held = held && len(heldBy([]storage.State{st})) > 0
	}
	return unfinished, held
}

// lanes returns all places in which a message id is unique; none, if there are
// too many.
func (s *Store) lanes(ctx context.Context) ([]messageLane, error) {
	var list []messageLane
	for at := (messageLane{}); ; {
		found := false
		err := s.operating(storage.Inbox).nextLane(at).each(ctx, s.reader, func(rows *sql.Rows) error {
			found = true
			return rows.Scan(&at.version, &at.group, &at.subscriber, &at.topic)
		})
		if err != nil || !found {
			return list, err
		}
		if list = append(list, at); len(list) > mostLanes {
			return nil, nil
		}
	}
}

// bound finds the places between which rows were added in the time of the
// filter.
func (s *Store) bound(ctx context.Context, v *view) error {
	if from := v.f.AddedFrom; !from.IsZero() {
		first, err := s.firstSince(ctx, v.f.Box, from.Add(-skew))
		if err != nil {
			return err
		}
		v.low = max(v.low, first-1)
	}
	if before := v.f.AddedBefore; !before.IsZero() {
		first, err := s.firstSince(ctx, v.f.Box, before.Add(skew))
		if err != nil {
			return err
		}
		v.high = min(v.high, first)
	}
	return nil
}

// firstSince halves the range of seq until it has the first row added at t or
// later: its seq, or one behind the last row.
func (s *Store) firstSince(ctx context.Context, b storage.Box, t time.Time) (int64, error) {
	var low, high int64
	err := s.operating(b).places().each(ctx, s.reader, func(rows *sql.Rows) error { return rows.Scan(&low, &high) })
	if err != nil {
		return 0, err
	}
	for high++; low < high; {
		middle := low + (high-low)/2
		seq, added := high, int64(math.MaxInt64) // rows may be deleted meanwhile
		err := s.operating(b).addedAt(middle).each(ctx, s.reader, func(rows *sql.Rows) error { return rows.Scan(&seq, &added) })
		switch {
		case err != nil:
			return 0, err
		case added >= t.UnixMicro():
			high = middle
		default:
			low = seq + 1
		}
	}
	return low, nil
}

// look reads one window: how many rows were looked at, and the last one's seq.
func (s *Store) look(ctx context.Context, v view, into *[]*storage.Row) (looked int, last int64, err error) {
	err = s.operating(v.f.Box).listing(v).each(ctx, s.reader, func(rows *sql.Rows) error {
		row, err := operated(rows, &looked, &last)
		if row != nil {
			*into = append(*into, row)
		}
		return err
	})
	return looked, last, err
}

// operated reads a row of the columns of listing; nil: none matches.
func operated(rows *sql.Rows, looked *int, last *int64) (*storage.Row, error) {
	var (
		end, seq, owner, due, wait, added, age, expires, bytes sql.NullInt64
		status, retries, takeovers                             sql.NullInt32
		version, topic, group, subscriber, message, lastError  sql.NullString
		living                                                 sql.NullBool
		id, key                                                []byte
	)
	err := rows.Scan(looked, &end, &seq, &id, &version, &topic, &group, &subscriber, &message, &key, &owner, &status, &retries,
		&takeovers, &lastError, &due, &wait, &added, &age, &expires, &bytes, &living)
	*last = end.Int64
	if err != nil || !seq.Valid {
		return nil, err
	}
	rec := &storage.Record{
		ID: storage.ID(id), Version: version.String, Topic: topic.String, Owner: owner.Int64,
		Group: group.String, Subscriber: subscriber.String, MessageID: message.String, Key: string(key),
		Position: storage.Position{Seq: seq.Int64}, Status: storage.Status(status.Int32), Final: expires.Valid, //nolint:gosec // it is a smallint
		Retries: int(retries.Int32), Takeovers: int(takeovers.Int32), LastError: lastError.String, Age: max(micros(-age.Int64), 0),
	}
	row := &storage.Row{Record: rec, Bytes: bytes.Int64, AddedAt: time.UnixMicro(added.Int64).UTC(), OwnerLiving: living.Bool}
	if due.Valid {
		rec.Position.DueAt, row.DueIn = time.UnixMicro(due.Int64).UTC(), micros(wait.Int64)
	}
	if expires.Valid {
		row.ExpiresAt = time.UnixMicro(expires.Int64).UTC()
	}
	return row, nil
}

// fill reads headers and bodies of a page, as far as it may have them.
func (s *Store) fill(ctx context.Context, b storage.Box, l *storage.Listing) error {
	sum := int64(0)
	keys := make(map[int64]*storage.Row)
	for i, r := range l.Rows {
		keys[r.Position.Seq] = r
		if sum += r.Bytes; sum > storage.MaxPageBytes && i+1 < len(l.Rows) {
			l.Rows, l.Next = l.Rows[:i+1], r.Position.Seq
			break
		}
	}
	if len(keys) == 0 {
		return nil
	}
	list := make([]int64, 0, len(keys))
	for k := range keys {
		list = append(list, k)
	}
	err := s.operating(b).contents(list).each(ctx, s.reader, func(rows *sql.Rows) error {
		var seq int64
		var headers, body []byte
		if err := rows.Scan(&seq, &headers, &body); err != nil {
			return err
		}
		keys[seq].Headers, keys[seq].Body = bytesOf(headers), bytesOf(body)
		return nil
	})
	l.Rows = slices.DeleteFunc(l.Rows, func(r *storage.Row) bool { return r.Body == nil })
	return err
}

// Change implements storage.Operator: all ids in one transaction.
func (s *Store) Change(ctx context.Context, a storage.Action, f storage.Filter) ([]storage.ID, error) {
	if err := cmp.Or(s.err, f.Validate()); err != nil {
		return nil, err
	}
	if a < storage.Requeue || a > storage.Delete {
		return nil, fmt.Errorf("gormstore: there is no %s", a)
	}
	given := unique(f.IDs)
	if f.Box == storage.Outbox && f.MessageID != "" {
		id, err := storage.ParseID(f.MessageID)
		given = slices.DeleteFunc(given, func(g storage.ID) bool { return err != nil || g != id })
	}
	done := make(idSet)
	err := s.inTx(ctx, func(ctx context.Context, tx conn) error {
		clear(done)
		return batches(given, rowsPer, func(part []storage.ID) error {
			f.IDs = part
			o := s.operating(f.Box)
			set, where := o.changing(a, f)
			return o.change(ctx, tx, set, part, where, done)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("gormstore: %s %s: %w", a, f.Box, err)
	}
	return slices.DeleteFunc(given, func(id storage.ID) bool { return !done[id] }), nil
}
