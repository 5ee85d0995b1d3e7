package gormstore

import (
	"context"
	"strconv"

	"github.com/capbus/gocap/storage"
)

// sqliteWords makes numbered parameters, so that their place does not matter.
type sqliteWords struct {
	d    *sqlite
	b    storage.Box
	args []any
}

func (d *sqlite) operating(b storage.Box) opWords { return &sqliteWords{d: d, b: b} }

func (d *sqlite) apart(_ context.Context, _ querier, _ storage.Box, version string) (parts, error) {
	return oneVersion(version), nil
}

func (w *sqliteWords) add(v any, _ string) string {
	if m, ok := v.(messageBytes); ok {
		v = string(m)
	}
	w.args = append(w.args, v)
	return `?` + strconv.Itoa(len(w.args))
}

func (w *sqliteWords) rows() string                { return w.d.table(w.b) }
func (w *sqliteWords) heartbeats() string          { return w.d.instances }
func (w *sqliteWords) now() string                 { return sqliteNow }
func (w *sqliteWords) moment(micros string) string { return micros }
func (w *sqliteWords) micros(moment string) string { return moment }
func (w *sqliteWords) until(moment string) string  { return `(` + moment + ` - ` + sqliteNow + `)` }
func (w *sqliteWords) id() string                  { return `r.id` }
func (w *sqliteWords) text(column string) string   { return `CAST(` + column + ` AS BLOB)` }
func (w *sqliteWords) size() string                { return `length(r.headers) + length(r.body)` }
func (w *sqliteWords) query(text string) query     { return query{text, w.args} }

func (w *sqliteWords) among(ids []storage.ID) string {
	text := `id IN (`
	for i, id := range ids {
		if i > 0 {
			text += `,`
		}
		text += w.add(id[:], "bytea")
	}
	return text + `)`
}

// begins: of texts, substr would count characters.
func (w *sqliteWords) begins(column, prefix string) string {
	return `substr(CAST(` + column + ` AS BLOB), 1, ` + w.add(len(prefix), "bigint") + `) = ` + w.add([]byte(prefix), "bytea")
}

func (w *sqliteWords) behind(columns []string, values ...string) string {
	return rowBehind(w, columns, values)
}

func (w *sqliteWords) from(opIndex) string { return w.rows() }

func (w *sqliteWords) along(ix opIndex, in parts) (where, order string) {
	return alongIndex(w, w.b, ix, in)
}

func (w *sqliteWords) change(ctx context.Context, tx conn, set string, _ []storage.ID, where string, done idSet) error {
	return w.query(changeOf(w.rows(), set, where)+` RETURNING id`).ids(ctx, tx, done)
}

// oneVersion is the parts of one, or all.
func oneVersion(version string) parts {
	if version == "" {
		return parts{}
	}
	return parts{versions: []string{version}}
}

// alongIndex is opWords.along for databases with partial indexes.
func alongIndex(w opWords, b storage.Box, ix opIndex, in parts) (where, order string) {
	if len(in.versions) > 0 && (ix == byDue || ix == byKey || ix == byExpiry) {
		where = `version = ` + w.add(in.versions[0], "text") + ` AND `
	}
	switch ix {
	case byDelayed:
		return `status IN (1, 3) AND status = 1`, `seq`
	case byFailed:
		return `status IN (1, 3) AND status = 3`, `seq`
	case byDue:
		if order = `version, owner, due_at, seq`; b == storage.Inbox {
			order = `version, owner, group_name, subscriber, due_at, seq`
		}
		return where + `due_at IS NOT NULL` + inLanes, order
	case byKey:
		if order = `version, ordering_key, seq`; b == storage.Inbox {
			order = `version, group_name, subscriber, ordering_key, seq`
		}
		return where + inKeys, order
	case byExpiry:
		return where + `due_at IS NULL`, `version, expires_at`
	}
	return `1 = 1`, `seq` // the caller has bounds, and SQLite would take another one instead
}
