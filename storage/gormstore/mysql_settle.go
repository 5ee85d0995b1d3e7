package gormstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/capbus/gocap/storage"
)

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
