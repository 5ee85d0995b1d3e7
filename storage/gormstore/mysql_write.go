package gormstore

import (
	"context"
	"strings"

	"github.com/capbus/gocap/storage"
)

// The inserts use VALUES alone: for a SELECT the server may lock the counter of
// the table until the end of the statement. A row names the clock once, and
// takes the value from the column after that: to parse it takes a fifth of the
// time of a batch otherwise.

func (d *mysql) insertOutbox(recs []*storage.Record) query {
	var sb strings.Builder
	withKey, key, more := keyed(recs), "", ""
	if withKey {
		key, more = ", ordering_key", ",?"
	}
	sb.WriteString("INSERT INTO " + d.published + " (added_at, updated_at, status, id, version, name, owner, headers, body, size, due_at" + key + ") VALUES ")
	args := make([]any, 0, 10*len(recs))
	for i, r := range recs {
		status, due, wait := startOf(r)
		value, sep := "?", ","
		if i == 0 {
			value, sep = d.inTransaction("?"), ""
		}
		moment := "added_at + ?"
		if due != nil {
			moment = "?"
		} else {
			due = wait
		}
		sb.WriteString(sep + "(" + mysqlNow + ",added_at," + value + ",?,?,?,?,?,?,?," + moment + more + ")")
		args = append(args, int64(status), r.ID[:], []byte(r.Version), []byte(r.Topic), ownerOf(r.Owner),
			bytesOf(r.Headers), bytesOf(r.Body), len(r.Headers)+len(r.Body), due)
		if withKey {
			args = append(args, keyOf(r.Key))
		}
	}
	return query{sb.String(), args}
}

// insertInbox counts: when as many rows were inserted as were given, all are
// new. Otherwise the careful run looks which. (INSERT IGNORE would cut what does
// not fit.)
func (d *mysql) insertInbox(ctx context.Context, tx conn, rows []inboxRow, inserted idSet) error {
	for _, r := range rows {
		if err := r.checkLengths(); err != nil {
			return err
		}
	}
	ids := make([]storage.ID, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	if careful(tx) {
		return d.insertInboxCarefully(ctx, tx, rows, ids, inserted)
	}
	exact, err := d.countsExactly(ctx, tx)
	if err != nil {
		return err
	}
	if !exact {
		return &againError{"the driver counts rows that are found as if they were changed"}
	}
	n, err := d.inboxInsert(rows).changed(ctx, tx)
	switch {
	case err != nil:
		return err
	case n == int64(len(rows)):
		inserted.add(ids)
	case len(rows) > 1:
		return &againError{"some rows are there already"}
	}
	return nil
}

// insertInboxCarefully notes the ids that are there after the insert and were
// not before: a call whose answer was lost is repeated with the same ids.
func (d *mysql) insertInboxCarefully(ctx context.Context, tx conn, rows []inboxRow, ids []storage.ID, inserted idSet) error {
	there := query{"SELECT id FROM " + d.received + mysqlByID + " WHERE id IN (" + marks(len(ids)) + ")", idArgs(ids)}
	before, after := make(idSet), make(idSet, len(ids))
	if err := there.ids(ctx, tx, before); err != nil {
		return err
	}
	if _, err := d.inboxInsert(rows).exec(ctx, tx); err != nil {
		return err
	}
	if err := there.ids(ctx, tx, after); err != nil {
		return err
	}
	for id := range after {
		if !before[id] {
			inserted[id] = true
		}
	}
	return nil
}

func (d *mysql) inboxInsert(rows []inboxRow) query {
	var sb strings.Builder
	sb.WriteString("INSERT INTO " + d.received + " (added_at, updated_at, id, version, group_name, subscriber, name, message_id," +
		" owner, headers, body, size, status, last_error, due_at, expires_at, ordering_key) VALUES ")
	args := make([]any, 0, 13*len(rows))
	for i, r := range rows {
		if i > 0 {
			sb.WriteString(",")
		}
		args = append(args, r.ID[:], []byte(r.version), []byte(r.Group), []byte(r.Subscriber), []byte(r.Topic),
			[]byte(r.key), ownerOf(r.owner), bytesOf(r.Headers), bytesOf(r.Body), len(r.Headers)+len(r.Body),
			int64(r.status), []byte(r.fault))
		due, expires := "NULL", "NULL"
		if r.due {
			due = "added_at"
		}
		if r.keep >= 0 {
			expires = "added_at + ?"
			args = append(args, r.keep)
		}
		args = append(args, keyOf(r.Key))
		sb.WriteString("(" + mysqlNow + ",added_at,?,?,?,?,?,?,?,?,?,?,?,?," + due + "," + expires + ",?)")
	}
	sb.WriteString(" ON DUPLICATE KEY UPDATE id = id")
	return query{sb.String(), args}
}

// checkLengths compares the names with the widths of their columns.
func (r *inboxRow) checkLengths() error {
	for _, c := range []struct{ column, value string }{
		{"the topic", r.Topic}, {"the group", r.Group}, {"the subscriber", r.Subscriber}, {"the message id", r.key},
	} {
		if len(c.value) > maxName {
			return &lengthError{c.column, len(c.value), maxName}
		}
	}
	return nil
}

// countsExactly finds out, once, whether the driver leaves rows out that an
// INSERT finds and does not change. With clientFoundRows in the DSN it does not.
func (d *mysql) countsExactly(ctx context.Context, tx conn) (bool, error) {
	if found := d.foundRows.Load(); found != nil {
		return !*found, nil
	}
	var n int64
	for range 2 {
		var err error
		if n, err = d.lockJoin().changed(ctx, tx); err != nil {
			return false, err
		}
	}
	found := n > 0
	d.foundRows.Store(&found)
	return !found, nil
}

func (s idSet) add(ids []storage.ID) {
	for _, id := range ids {
		s[id] = true
	}
}

func (d *mysql) removeUnmatched(version string, id storage.ID) query {
	return textOf("DELETE r FROM "+d.received+" AS r"+mysqlByID+
		" WHERE id = ? AND version = ? AND subscriber = '' AND owner IS NULL AND expires_at IS NULL", id[:], []byte(version))
}

// take locks the rows that nobody else is taking, and changes what it has read.
func (d *mysql) take(ctx context.Context, tx conn, r *reader, t taking) error {
	args, owner := anys(t.keys), "owner IS NULL"
	if t.owner != 0 {
		owner, args = "owner = ?", append(args, t.owner)
	}
	due := "due_at IS NOT NULL"
	if t.mustBeDue {
		due = "due_at <= " + mysqlNow
	}
	got := reader{next: -1}
	err := query{"SELECT 0, " + d.columns(t.box) + " FROM " + d.table(t.box) + mysqlBySeq + " WHERE seq IN (" + marks(len(t.keys)) +
		") AND " + owner + " AND " + due + " FOR UPDATE SKIP LOCKED", args}.into(ctx, tx, &got)
	if err != nil || len(got.recs) == 0 {
		return err
	}
	set := "owner = ?, updated_at = " + mysqlNow
	if t.died {
		set += ", takeovers = IF(takeovers = 0, 1, takeovers)"
	}
	if _, err := d.updateRead(t.box, set, got.recs, t.number).changed(ctx, tx); err != nil {
		return err
	}
	for _, rec := range got.recs {
		rec.Owner = t.number
		if t.died {
			rec.Takeovers = max(rec.Takeovers, 1)
		}
	}
	r.append(got)
	return nil
}

// updateRead changes rows that the transaction has read and locked.
func (d *mysql) updateRead(b storage.Box, set string, recs []*storage.Record, args ...any) query {
	for _, rec := range recs {
		args = append(args, rec.Position.Seq)
	}
	return query{"UPDATE " + d.table(b) + mysqlBySeq + " SET " + set + " WHERE seq IN (" + marks(len(recs)) + ")", args}
}

// append takes in what another reader has read.
func (r *reader) append(more reader) {
	r.recs = append(r.recs, more.recs...)
	r.bytes += more.bytes
}

func (d *mysql) claim(ctx context.Context, tx conn, r *reader, b storage.Box, number int64, ids []storage.ID) error {
	got := reader{next: -1}
	err := query{
		"SELECT 0, " + d.columns(b) + " FROM " + d.table(b) + mysqlByID + " WHERE id IN (" + marks(len(ids)) +
			") AND owner = ? AND IF(status = 1, due_at <= " + mysqlNow + ", takeovers > 0 AND due_at IS NOT NULL) FOR UPDATE",
		append(idArgs(ids), number),
	}.into(ctx, tx, &got)
	if err != nil || len(got.recs) == 0 {
		return err
	}
	set := "updated_at = " + mysqlNow + ", status = IF(status = 1, 0, status), takeovers = IF(takeovers > 0, takeovers + 1, 0)"
	if _, err := d.updateRead(b, set, got.recs).changed(ctx, tx); err != nil {
		return err
	}
	for _, rec := range got.recs {
		if rec.Status == storage.Delayed {
			rec.Status = storage.Scheduled
		}
		if rec.Takeovers > 0 {
			rec.Takeovers++
		}
	}
	r.append(got)
	return nil
}

// purge deletes by key what it has locked, so that several who purge at once do
// not wait for each other.
func (d *mysql) purge(ctx context.Context, tx conn, p storage.Purge) (int64, error) {
	t := d.table(p.Box)
	keys, err := readAll[int64](ctx, tx, textOf("SELECT seq FROM "+t+mysqlByExpiry+
		" WHERE version = ? AND expires_at <= "+mysqlNow+" AND due_at IS NULL ORDER BY expires_at LIMIT ? FOR UPDATE SKIP LOCKED",
		[]byte(p.Version), p.Limit))
	if err != nil {
		return 0, err
	}
	var deleted int64
	err = batches(keys, rowsPer, func(part []int64) error {
		n, err := query{"DELETE r FROM " + t + " AS r" + mysqlBySeq + " WHERE seq IN (" + marks(len(part)) + ")", anys(part)}.
			changed(ctx, tx)
		deleted += n
		return err
	})
	return deleted, err
}
