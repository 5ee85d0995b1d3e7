package gormstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/capbus/gocap/storage"
)

// The inserts use VALUES alone: for a SELECT the server may lock the counter of
// the table until the end of the statement. A row names the clock once, and
// takes the value from the column after that: to parse it takes a fifth of the
// time of a batch otherwise.

func (d *mysql) insertOutbox(recs []*storage.Record) query {
	var sb strings.Builder
	sb.WriteString("INSERT INTO " + d.published + " (added_at, updated_at, status, id, version, name, owner, headers, body, size, due_at) VALUES ")
	args := make([]any, 0, 9*len(recs))
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
		sb.WriteString(sep + "(" + mysqlNow + ",added_at," + value + ",?,?,?,?,?,?,?," + moment + ")")
		args = append(args, int64(status), r.ID[:], mysqlBytes(r.Version), mysqlBytes(r.Topic), ownerOf(r.Owner),
			bytesOf(r.Headers), bytesOf(r.Body), len(r.Headers)+len(r.Body), due)
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
		" owner, headers, body, size, status, last_error, due_at, expires_at) VALUES ")
	args := make([]any, 0, 13*len(rows))
	for i, r := range rows {
		if i > 0 {
			sb.WriteString(",")
		}
		args = append(args, r.ID[:], mysqlBytes(r.version), mysqlBytes(r.Group), mysqlBytes(r.Subscriber), mysqlBytes(r.Topic),
			mysqlBytes(r.key), ownerOf(r.owner), bytesOf(r.Headers), bytesOf(r.Body), len(r.Headers)+len(r.Body),
			int64(r.status), mysqlBytes(r.fault))
		due, expires := "NULL", "NULL"
		if r.due {
			due = "added_at"
		}
		if r.keep >= 0 {
			expires = "added_at + ?"
			args = append(args, r.keep)
		}
		sb.WriteString("(" + mysqlNow + ",added_at,?,?,?,?,?,?,?,?,?,?,?,?," + due + "," + expires + ")")
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
		" WHERE id = ? AND version = ? AND subscriber = '' AND owner IS NULL AND expires_at IS NULL", id[:], mysqlBytes(version))
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
	err := query{"SELECT 0, " + d.columns(b) + " FROM " + d.table(b) + mysqlByID + " WHERE id IN (" + marks(len(ids)) +
		") AND owner = ? AND IF(status = 1, due_at <= " + mysqlNow + ", takeovers > 0 AND due_at IS NOT NULL) FOR UPDATE",
		append(idArgs(ids), number)}.into(ctx, tx, &got)
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

// change runs a statement that changes, or deletes, rows of the given ids. It
// counts: when fewer were changed, the careful run first finds and locks those
// that will be. A single row that was not changed is lost, without more ado.
func (d *mysql) change(ctx context.Context, tx conn, s settling, ids []storage.ID, find, change query) error {
	if careful(tx) {
		if err := find.ids(ctx, tx, s.done); err != nil {
			return err
		}
		_, err := change.exec(ctx, tx)
		return err
	}
	n, err := change.changed(ctx, tx)
	switch {
	case err != nil:
		return err
	case n == int64(len(ids)):
		s.done.add(ids)
	case len(ids) > 1:
		return &againError{"some rows are another's"}
	}
	return nil
}

// unfinished is the condition for rows of a member by their ids, and its values.
func (d *mysql) unfinished(s settling, ids []storage.ID) (string, []any) {
	return " WHERE id IN (" + marks(len(ids)) + ") AND owner = ? AND expires_at IS NULL", append(idArgs(ids), s.number)
}

func (d *mysql) succeed(ctx context.Context, tx conn, s settling, ids []storage.ID, keep int64) error {
	where, args := d.unfinished(s, ids)
	table := d.table(s.box) + mysqlByID
	return d.change(ctx, tx, s, ids,
		query{"SELECT id FROM " + table + where + " FOR UPDATE", args},
		query{"UPDATE " + table + " SET status = 2, takeovers = 0, due_at = NULL, owner = NULL, updated_at = " + mysqlNow +
			", expires_at = " + mysqlNow + " + ?" + where, append([]any{keep}, args...)})
}

func (d *mysql) remove(ctx context.Context, tx conn, s settling, ids []storage.ID) error {
	where, args := d.unfinished(s, ids)
	table := d.table(s.box)
	return d.change(ctx, tx, s, ids,
		query{"SELECT id FROM " + table + mysqlByID + where + " FOR UPDATE", args},
		query{"DELETE r FROM " + table + " AS r" + mysqlByID + where, args})
}

// outcomeJSON is an outcome as the server reads it: text in hexadecimal, so that
// the encoding of the connection does not matter.
type outcomeJSON struct {
	ID       string `json:"i"`
	Kind     int    `json:"k"`
	Attempt  int    `json:"a"`
	Wait     int64  `json:"w"`
	Callback int    `json:"c"`
	Claimed  int    `json:"d"`
	Error    string `json:"e"`
}

// settle: the kinds are those of storage.OutcomeKind. No assignment reads a
// column that another changes: their order is not defined here.
func (d *mysql) settle(ctx context.Context, tx conn, s settling, outcomes []outcomeRow) error {
	if half := len(outcomes) / 2; half > 0 && d.textSize(outcomes) > d.maxBytes() {
		if err := d.settle(ctx, tx, s, outcomes[:half]); err != nil {
			return err
		}
		return d.settle(ctx, tx, s, outcomes[half:])
	}
	list := make([]outcomeJSON, len(outcomes))
	ids := make([]storage.ID, len(outcomes))
	for i, o := range outcomes {
		ids[i] = o.ID
		list[i] = outcomeJSON{
			ID: hex.EncodeToString(o.ID[:]), Kind: int(o.Kind), Attempt: o.Attempt, Wait: o.wait,
			Callback: bit(o.Callback), Claimed: bit(o.Claimed), Error: hex.EncodeToString([]byte(o.text)),
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("outcomes as JSON: %w", err)
	}
	from := "JSON_TABLE(?, '$[*]' COLUMNS (id CHAR(32) PATH '$.i', kind INT PATH '$.k', attempt INT PATH '$.a'," +
		" wait BIGINT PATH '$.w', callback INT PATH '$.c', claimed INT PATH '$.d', error LONGTEXT PATH '$.e')) AS o" +
		" STRAIGHT_JOIN " + d.table(s.box) + " AS r" + mysqlByID + " ON r.id = UNHEX(o.id)"
	const where = " WHERE r.owner = ? AND CASE o.kind" +
		" WHEN 5 THEN r.expires_at IS NOT NULL AND r.due_at IS NOT NULL WHEN 6 THEN r.due_at IS NOT NULL" +
		" ELSE r.expires_at IS NULL END"
	const set = " SET r.updated_at = " + mysqlNow +
		", r.status = IF(o.kind IN (2, 4), 3, r.status)" +
		", r.retries = IF(o.attempt > 0, o.attempt, r.retries)" +
		", r.takeovers = IF(o.kind = 6, r.takeovers - (o.claimed = 1 AND r.takeovers > 1), 0)" +
		", r.due_at = CASE o.kind WHEN 2 THEN " + mysqlNow + " + o.wait WHEN 3 THEN " + mysqlNow + " + o.wait" +
		" WHEN 4 THEN IF(o.callback = 1, " + mysqlNow + ", NULL) WHEN 5 THEN NULL ELSE r.due_at END" +
		", r.owner = IF(o.kind = 5 OR o.kind = 4 AND o.callback = 0, NULL, r.owner)" +
		", r.expires_at = IF(o.kind = 4, " + mysqlNow + " + o.wait, r.expires_at)" +
		", r.last_error = IF(o.error = '', r.last_error, UNHEX(o.error))"
	args := []any{string(text), s.number}
	return d.change(ctx, tx, s, ids,
		query{"SELECT r.id FROM " + from + where + " FOR UPDATE", args}, query{"UPDATE " + from + set + where, args})
}

// textSize bounds the size of the text of the outcomes.
func (d *mysql) textSize(outcomes []outcomeRow) int {
	sum := 0
	for _, o := range outcomes {
		sum += 256 + 2*len(o.text)
	}
	return sum
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// purge deletes by key what it has locked, so that several who purge at once do
// not wait for each other.
func (d *mysql) purge(ctx context.Context, tx conn, p storage.Purge) (int64, error) {
	t := d.table(p.Box)
	keys, err := readAll[int64](ctx, tx, textOf("SELECT seq FROM "+t+mysqlByExpiry+
		" WHERE version = ? AND expires_at <= "+mysqlNow+" AND due_at IS NULL ORDER BY expires_at LIMIT ? FOR UPDATE SKIP LOCKED",
		mysqlBytes(p.Version), p.Limit))
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
