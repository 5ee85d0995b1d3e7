package gormstore

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/capbus/gocap/storage"
)

type mysqlWords struct {
	d    *mysql
	b    storage.Box
	args []any
}

func (d *mysql) operating(b storage.Box) opWords { return &mysqlWords{d: d, b: b} }

// apart: rows that an index is not for come first in each version of it, and in
// each lane of the one on keys.
func (d *mysql) apart(ctx context.Context, db querier, b storage.Box, version string) (in parts, err error) {
	if in = oneVersion(version); version == "" {
		if in.versions, err = d.allVersions(ctx, db, b); err != nil {
			return in, err
		}
	}
	for _, v := range in.versions {
		lanes, err := d.keyedLanes(ctx, db, b, v)
		if err != nil {
			return in, err
		}
		in.lanes = append(in.lanes, lanes...)
	}
	return in, nil
}

func (d *mysql) allVersions(ctx context.Context, db querier, b storage.Box) ([]string, error) {
	var found []string
	last := []byte{}
	for {
		next, err := readAll[[]byte](ctx, db, textOf("SELECT version FROM "+d.table(b)+mysqlByDue+
			" WHERE version > ? ORDER BY version LIMIT 1", last))
		if err != nil || len(next) == 0 {
			return found, err
		}
		last = next[0]
		found = append(found, string(last))
	}
}

func (w *mysqlWords) add(v any, _ string) string {
	switch t := v.(type) {
	case messageBytes:
		v = []byte(t)
	case string:
		v = []byte(t)
	}
	w.args = append(w.args, v)
	return "?"
}

func (w *mysqlWords) rows() string                { return w.d.table(w.b) }
func (w *mysqlWords) heartbeats() string          { return w.d.instances }
func (w *mysqlWords) now() string                 { return mysqlNow }
func (w *mysqlWords) moment(micros string) string { return micros }
func (w *mysqlWords) micros(moment string) string { return moment }
func (w *mysqlWords) until(moment string) string  { return "(" + moment + " - " + mysqlNow + ")" }
func (w *mysqlWords) id() string                  { return "r.id" }
func (w *mysqlWords) text(column string) string   { return column }
func (w *mysqlWords) size() string                { return "r.size" }
func (w *mysqlWords) query(text string) query     { return query{text, w.args} }

func (w *mysqlWords) among(ids []storage.ID) string {
	w.args = append(w.args, idArgs(ids)...)
	return "id IN (" + marks(len(ids)) + ")"
}

func (w *mysqlWords) begins(column, prefix string) string {
	return "LEFT(" + column + ", " + w.add(len(prefix), "bigint") + ") = " + w.add(prefix, "text")
}

func (w *mysqlWords) behind(columns []string, values ...string) string {
	text, args := mysqlBehind(columns, byteArgs(values))
	w.args = append(w.args, args...)
	return text
}

// mysqlBehind has a range of the index for each column: a comparison of all as
// one row would not use it.
func mysqlBehind(columns []string, values []any) (string, []any) {
	var parts []string
	var args []any
	same := ""
	for i, c := range columns {
		parts = append(parts, same+c+" > ?")
		args = append(append(args, values[:i]...), values[i])
		same += c + " = ? AND "
	}
	return "(" + strings.Join(parts, " OR ") + ")", args
}

func (w *mysqlWords) from(ix opIndex) string {
	return w.rows() + map[opIndex]string{
		bySeq: mysqlBySeq, byDelayed: mysqlByHeld, byFailed: mysqlByHeld, byDue: mysqlByDue, byKey: mysqlByKey, byExpiry: mysqlByExpiry,
		byID: mysqlByID, byMessage: mysqlByMessage,
	}[ix]
}

func (w *mysqlWords) along(ix opIndex, in parts) (where, order string) {
	within := func() string {
		if len(in.versions) == 0 {
			return "version IN (NULL)"
		}
		w.args = append(w.args, byteArgs(in.versions)...)
		return "version IN (" + marks(len(in.versions)) + ")"
	}
	switch ix {
	case byDelayed:
		return "held = 1", "seq"
	case byFailed:
		return "held = 3", "seq"
	case byDue:
		if order = "version, free_owner, due_at, seq"; w.b == storage.Inbox {
			order = "version, free_owner, group_name, subscriber, due_at, seq"
		}
		return within() + " AND free_owner >= 0", order
	case byKey:
		if order = "version, open_key, seq"; w.b == storage.Inbox {
			order = "version, group_name, subscriber, open_key, seq"
		}
		where, args := w.d.inLanes(w.b, in.lanes)
		w.args = append(w.args, args...)
		return where, order
	case byExpiry:
		return within() + " AND expires_at IS NOT NULL", "version, expires_at"
	}
	return "1 = 1", "seq"
}

// change locks the rows before it looks which may be changed: the clock stands
// still within a statement, however long that waits for others.
func (w *mysqlWords) change(ctx context.Context, tx conn, set string, ids []storage.ID, where string, done idSet) error {
	find := "SELECT id FROM " + w.from(byID) + " WHERE "
	if err := (query{find + "id IN (" + marks(len(ids)) + ") FOR UPDATE", idArgs(ids)}).ids(ctx, tx, make(idSet)); err != nil {
		return err
	}
	found := make(idSet)
	if err := (query{find + where + " FOR UPDATE", w.args}).ids(ctx, tx, found); err != nil || len(found) == 0 {
		return err
	}
	verb := "DELETE r FROM " + w.rows() + " AS r" + mysqlByID
	if set != "" {
		verb = "UPDATE " + w.from(byID) + " SET " + set
	}
	list := slices.Collect(maps.Keys(found))
	if _, err := (query{verb + " WHERE id IN (" + marks(len(list)) + ")", idArgs(list)}).exec(ctx, tx); err != nil {
		return err
	}
	done.add(list)
	return nil
}
