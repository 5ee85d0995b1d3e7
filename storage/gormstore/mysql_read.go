package gormstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/capbus/gocap/storage"
)

// columns lists what reader.scan reads.
func (d *mysql) columns(b storage.Box) string {
	const common = "seq, id, version, name, owner, headers, body, status, retries, takeovers, last_error, due_at, " +
		mysqlNow + " - added_at, expires_at IS NOT NULL, ordering_key"
	if b == storage.Inbox {
		return common + ", group_name, subscriber, message_id"
	}
	return common + ", '', '', ''"
}

// The optimizer scans a table that it takes for small, or most of which it
// expects to need. Rows that others have locked would then be waited for, so
// every statement names its index.
const (
	mysqlByID      = " FORCE INDEX (by_id)"
	mysqlByDue     = " FORCE INDEX (by_due)"
	mysqlByExpiry  = " FORCE INDEX (by_expiry)"
	mysqlByHeld    = " FORCE INDEX (by_held)"
	mysqlByKey     = " FORCE INDEX (by_key)"
	mysqlByMessage = " FORCE INDEX (by_message)"
	mysqlBySeq     = " FORCE INDEX (PRIMARY)"
)

// union joins selects, each of which has its own order and limit.
type union struct {
	parts []string
	args  []any
}

func (u *union) add(text string, args ...any) {
	u.parts = append(u.parts, text)
	u.args = append(u.args, args...)
}

func (u *union) text() string {
	if len(u.parts) == 1 {
		return u.parts[0]
	}
	return "(" + strings.Join(u.parts, ") UNION ALL (") + ")"
}

func (u *union) query() query { return query{u.text(), u.args} }

// due: all parts of the statement see the same moment. The lanes are united as
// places of rows, before the rows themselves are read: a union of bodies is made
// through a table on the disk, even when there are none. For the same reason it
// is the places that know how many bytes are ahead of them.
func (d *mysql) due(b storage.Box, version string, owner int64, lanes []storage.Lane, most int) query {
	var u union
	for _, l := range lanes {
		where, args := d.lane(b, version, owner, l.Group, l.Subscriber)
		u.add("SELECT 1 AS kind, 0 AS lane, NULL AS place, due_at AS due FROM "+d.table(b)+mysqlByDue+
			" WHERE "+where+" AND due_at > "+mysqlNow+" ORDER BY due_at LIMIT 1", args...)
	}
	for i, l := range lanes {
		w := d.walk(fmt.Sprintf("0, %d, ", i), b, version, owner, l, 0)
		u.add(w.text, w.args...)
	}
	columns := "k.kind, IFNULL(r.seq, 0), IFNULL(r.id, ''), IFNULL(r.version, ''), IFNULL(r.name, ''), r.owner," +
		" IFNULL(r.headers, ''), IFNULL(r.body, ''), IFNULL(r.status, 0), IFNULL(r.retries, 0), IFNULL(r.takeovers, 0)," +
		" IFNULL(r.last_error, ''), IFNULL(r.due_at, 0), IF(k.kind = 1, k.due - " + mysqlNow + ", " + mysqlNow + " - r.added_at)," +
		" r.expires_at IS NOT NULL, r.ordering_key"
	if b == storage.Inbox {
		columns += ", IFNULL(r.group_name, ''), IFNULL(r.subscriber, ''), IFNULL(r.message_id, '')"
	} else {
		columns += ", '', '', ''"
	}
	places, within := u.text(), ""
	if most > 0 {
		places = "SELECT u.*, SUM(IFNULL(s.size, 0)) OVER (ORDER BY u.kind DESC, u.lane, u.due, u.place ROWS UNBOUNDED PRECEDING)" +
			" - IFNULL(s.size, 0) AS ahead FROM (" + places + ") AS u LEFT JOIN " + d.table(b) + " AS s ON s.seq = u.place"
		within = " WHERE k.ahead <= ?"
		u.args = append(u.args, most)
	}
	return query{"SELECT " + columns + " FROM (" + places + ") AS k LEFT JOIN " + d.table(b) + " AS r ON r.seq = k.place" +
		within + " ORDER BY k.kind DESC, k.lane, k.due, k.place", u.args}
}

// lane is the condition for an owner's rows of a lane; owner 0 is nobody.
func (d *mysql) lane(b storage.Box, version string, owner int64, group, subscriber string) (string, []any) {
	if b == storage.Inbox {
		return "version = ? AND free_owner = ? AND group_name = ? AND subscriber = ?",
			[]any{[]byte(version), owner, []byte(group), []byte(subscriber)}
	}
	return "version = ? AND free_owner = ?", []any{[]byte(version), owner}
}

// walk answers with the places of one owner's due rows of a lane, out of the
// index alone, behind columns of the caller's. Behind a position it has two
// ranges, the rest of its moment and what is later: a comparison of both columns
// as one would not use the index.
func (d *mysql) walk(columns string, b storage.Box, version string, owner int64, l storage.Lane, stale int64) query {
	where, args := d.lane(b, version, owner, l.Group, l.Subscriber)
	from := "seq AS place, due_at AS due FROM " + d.table(b) + mysqlByDue + " WHERE " + where + " AND due_at <= " + mysqlNow + " - ?"
	args = append(args, stale)
	if l.After == (storage.Position{}) {
		return query{"SELECT " + columns + from + " ORDER BY due_at, seq LIMIT ?", append(args, l.Limit)}
	}
	at := l.After.DueAt.UnixMicro()
	var u union
	u.add("SELECT "+from+" AND due_at = ? AND seq > ? ORDER BY seq LIMIT ?", append(slices.Clone(args), at, l.After.Seq, l.Limit)...)
	u.add("SELECT "+from+" AND due_at > ? ORDER BY due_at, seq LIMIT ?", append(slices.Clone(args), at, l.Limit)...)
	return query{"SELECT " + columns + "place, due FROM (" + u.text() + ") AS w ORDER BY due, place LIMIT ?", append(u.args, l.Limit)}
}

func (d *mysql) byID(b storage.Box, ids []storage.ID, owner int64) query {
	return query{"SELECT 0, " + d.columns(b) + " FROM " + d.table(b) + mysqlByID +
		" WHERE id IN (" + marks(len(ids)) + ") AND owner = ? AND due_at IS NOT NULL", append(idArgs(ids), owner)}
}

// unmatched: such a row has an empty open_key until it is final.
func (d *mysql) unmatched(version, group string, after int64, most int) query {
	return textOf("SELECT 0, "+d.columns(storage.Inbox)+" FROM "+d.received+mysqlByKey+
		" WHERE version = ? AND group_name = ? AND subscriber = '' AND open_key = '' AND owner IS NULL"+
		" AND seq > ? ORDER BY seq LIMIT ?", []byte(version), []byte(group), after, most)
}

// subscribers takes a statement for each: MySQL cannot hop in one.
func (d *mysql) subscribers(ctx context.Context, db querier, version, group string, owner int64) ([]string, error) {
	var found []string
	behind, last := "", []byte(nil)
	for {
		args := []any{[]byte(version), owner, []byte(group)}
		if last != nil {
			behind, args = " AND subscriber > ?", append(args, last)
		}
		next, err := readAll[[]byte](ctx, db, query{"SELECT subscriber FROM " + d.received + mysqlByDue +
			" WHERE version = ? AND free_owner = ? AND group_name = ?" + behind + " ORDER BY subscriber LIMIT 1", args})
		if err != nil || len(next) == 0 {
			return found, err
		}
		last = next[0]
		found = append(found, string(last))
	}
}

// orphanage looks for owners in the ranges between the living numbers, a
// statement for each that it finds: MySQL cannot hop in one. Then it looks where
// those, and nobody, have rows that are due.
func (d *mysql) orphanage(
	ctx context.Context, db querier, b storage.Box, version string, q storage.Query, found func(lane int, owner int64),
) error {
	living, err := readAll[int64](ctx, db, d.others(b, version, 0))
	if err != nil {
		return err
	}
	owners, err := d.ownersBetween(ctx, db, b, version, living)
	if err != nil {
		return err
	}
	var pairs []pair
	for _, owner := range append(owners, 0) {
		for i := range q.Lanes {
			pairs = append(pairs, pair{lane: i, owner: owner})
		}
	}
	return batches(pairs, lanesPer, func(part []pair) error {
		var u union
		for _, p := range part {
			where, args := d.lane(b, version, p.owner, q.Lanes[p.lane].Group, q.Lanes[p.lane].Subscriber)
			switch {
			case everySubscriber(b, q):
				where, args = "version = ? AND free_owner = ? AND group_name = ?", args[:3]
			default:
				where, args = where+" AND due_at <= "+mysqlNow+" - ?", append(args, max(q.Stale, 0).Microseconds())
			}
			u.add("SELECT ?, ? FROM "+d.table(b)+mysqlByDue+" WHERE "+where+" LIMIT 1",
				append([]any{p.lane, p.owner}, args...)...)
		}
		return u.query().pairs(ctx, db, found)
	})
}

// numbers is a range of owners, without its ends; to 0 has no end.
type numbers struct{ from, to int64 }

// between are the ranges that sorted numbers leave.
func between(sorted []int64) []numbers {
	gaps := []numbers{{}}
	for _, n := range sorted {
		gaps[len(gaps)-1].to = n
		gaps = append(gaps, numbers{from: n})
	}
	return gaps
}

func (n numbers) condition() (string, []any) {
	if n.to > 0 {
		return "free_owner > ? AND free_owner < ?", []any{n.from, n.to}
	}
	return "free_owner > ?", []any{n.from}
}

// ownersBetween finds the owners of due rows that are none of the given.
func (d *mysql) ownersBetween(ctx context.Context, db querier, b storage.Box, version string, given []int64) ([]int64, error) {
	slices.Sort(given)
	gaps := between(given)
	var owners []int64
	for len(gaps) > 0 {
		var next []numbers
		err := batches(gaps, lanesPer, func(part []numbers) error {
			var u union
			for i, g := range part {
				where, args := g.condition()
				u.add("SELECT ?, free_owner FROM "+d.table(b)+mysqlByDue+" WHERE version = ? AND "+where+
					" ORDER BY free_owner LIMIT 1", append([]any{i, []byte(version)}, args...)...)
			}
			return u.query().each(ctx, db, func(rows *sql.Rows) error {
				var i int
				var owner int64
				err := rows.Scan(&i, &owner)
				owners = append(owners, owner)
				next = append(next, numbers{from: owner, to: part[i].to})
				return err
			})
		})
		if err != nil {
			return nil, err
		}
		gaps = next
	}
	return owners, nil
}

func (d *mysql) candidates(b storage.Box, version string, q storage.Query, ps []pair) query {
	var u union
	for _, p := range ps {
		l := q.Lanes[p.lane]
		if b == storage.Inbox {
			l.Subscriber = p.subscriber
		}
		w := d.walk(fmt.Sprintf("%d AS lane, ", p.lane), b, version, p.owner, l, max(q.Stale, 0).Microseconds())
		u.add(w.text, w.args...)
	}
	return query{"SELECT k.lane, r.seq, COALESCE(r.owner, 0), k.due, r.size FROM (" + u.text() + ") AS k STRAIGHT_JOIN " +
		d.table(b) + " AS r ON r.seq = k.place", u.args}
}

func (d *mysql) candidatesByID(b storage.Box, version string, ids []storage.ID) query {
	return query{
		"SELECT 0, r.seq, COALESCE(r.owner, 0), r.due_at, r.size FROM " + d.table(b) + " AS r" + mysqlByID +
			" LEFT JOIN " + d.instances + " AS i ON i.number = r.owner AND i.ended_at IS NULL" +
			" WHERE r.id IN (" + marks(len(ids)) + ") AND r.version = ? AND r.due_at IS NOT NULL AND i.number IS NULL",
		append(idArgs(ids), []byte(version)),
	}
}
