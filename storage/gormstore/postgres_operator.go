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

func (d *postgres) apart(_ context.Context, _ querier, _ storage.Box, version string) (parts, error) {
	return oneVersion(version), nil
}

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
func (w *postgresWords) id() string                { return `uuid_send(r.id)` }
func (w *postgresWords) text(column string) string { return column }
func (w *postgresWords) size() string              { return `octet_length(r.headers) + octet_length(r.body)` }
func (w *postgresWords) query(text string) query   { return w.d.own(text, w.pgArgs) }

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

func (w *postgresWords) behind(columns []string, values ...string) string {
	return rowBehind(w, columns, values)
}

func (w *postgresWords) from(opIndex) string { return w.rows() }

func (w *postgresWords) along(ix opIndex, in parts) (where, order string) {
	return alongIndex(w, w.b, ix, in)
}

func (w *postgresWords) change(ctx context.Context, tx conn, set string, _ []storage.ID, where string, done idSet) error {
	return w.query(changeOf(w.rows(), set, where)+` RETURNING uuid_send(id)`).ids(ctx, tx, done)
}
