package gormstore

import (
	"context"

	"github.com/capbus/gocap/storage"
)

type postgresWords struct {
	pgArgs

	d *postgres
	b storage.Box
}

func (d *postgres) operating(b storage.Box) opWords { return &postgresWords{d: d, b: b} }

func (w *postgresWords) add(v any, typ string) string {
	if m, ok := v.(messageBytes); ok {
		v = []byte(m)
	}
	return w.pgArgs.add(v, typ)
}

func (w *postgresWords) rows() string                { return w.d.table(w.b) }
func (w *postgresWords) heartbeats() string          { return w.d.instances }
func (w *postgresWords) micros(moment string) string { return pgMicros(moment) }
func (w *postgresWords) until(moment string) string {
	return pgMicros(`(` + moment + ` - ` + pgClock + `)`)
}
func (w *postgresWords) id() string                  { return `uuid_send(r.id)` }
func (w *postgresWords) text(column string) string   { return column }
func (w *postgresWords) length(column string) string { return `octet_length(` + column + `)` }
func (w *postgresWords) query(text string) query     { return w.d.own(text, w.pgArgs) }

// now is one moment for all rows of a statement, so that they keep their order.
func (w *postgresWords) now() string { return pgNow }

func (w *postgresWords) moment(micros string) string {
	return `('epoch'::timestamptz + ` + pgSpan(micros) + `)`
}

func (w *postgresWords) among(ids []storage.ID) string {
	return `id = ANY(` + w.add(pgIDs(ids), "uuid[]") + `)`
}

func (w *postgresWords) begins(column, prefix string) string {
	return `starts_with(` + column + `, ` + w.add(prefix, "text") + `)`
}

func (w *postgresWords) along(ix opIndex, version string) (from, where, order string) {
	where, order = alongIndex(w, w.b, ix, version)
	return w.rows(), where, order
}

func (w *postgresWords) change(ctx context.Context, tx conn, verb, where string, done idSet) error {
	return w.query(verb+where+` RETURNING uuid_send(id)`).ids(ctx, tx, done)
}
