package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// TestStatementsDoNotGrowWithTheBatch: an operation on 500 rows sends as many
// statements as on one.
func TestStatementsDoNotGrowWithTheBatch(t *testing.T) {
	t.Parallel()
	rec := &recorder{}
	s := onPool(t, newDatabase(t), gormstore.Config{Unprepared: pgx.QueryExecModeExec}, rec.trace)
	must(t, s.Migrate(t.Context()))
	m := join(t, s, storage.Inbox)
	want := map[string]int{
		"append":    3, // BEGIN, INSERT, COMMIT
		"accept":    3,
		"due":       1,
		"glance":    1,
		"take over": 9, // two looks; BEGIN, looks, heartbeats, endings, UPDATE, COMMIT
		"claim":     3,
		"settle":    6, // BEGIN, one each for what succeeds, expires otherwise, is deleted, and the rest
		"purge":     4, // BEGIN, rows, heartbeats, COMMIT
	}
	for _, rows := range []int{1, 10, 500} {
		for name, n := range counted(t, s, rec, m, rows) {
			if n > want[name] {
				t.Errorf("%s of %d rows: %d statements, want at most %d", name, rows, n, want[name])
			}
		}
	}
}

// counted runs operations on so many rows, and returns their statements.
func counted(t *testing.T, s *gormstore.Store, rec *recorder, m storage.Member, rows int) map[string]int {
	t.Helper()
	n := make(map[string]int)
	note := func(name string, err error) {
		must(t, err)
		n[name] = len(rec.taken())
	}
	var out, in []*storage.Record
	for i := range rows {
		out = append(out, outgoing(0))
		in = append(in, incoming(fmt.Sprint(rows, " ", i)))
	}
	gone := join(t, s, storage.Inbox)
	rec.taken()
	note("append", appendTo(t.Context(), s, out...))
	_, err := gone.Accept(t.Context(), in...)
	note("accept", err)
	must(t, gone.Leave(t.Context()))
	run(t, s, `UPDATE cap_instances SET died = true WHERE ended_at IS NOT NULL`)
	rec.taken()
	taken, err := m.TakeOver(t.Context(), inLane(rows))
	note("take over", err)
	got, _, err := m.Due(t.Context(), inLane(rows))
	note("due", err)
	_, err = m.(storage.Glancer).Glance(t.Context(), storage.GlanceQuery{Lanes: inLane(rows).Lanes, Keys: inLane(rows).Lanes, Groups: []string{"g"}})
	note("glance", err)
	claimed, err := m.Claim(t.Context(), taken...)
	note("claim", err)
	if len(taken) != rows || len(got) != rows || len(claimed) != rows {
		t.Fatalf("%d rows: %d taken, %d due, %d claimed", rows, len(taken), len(got), len(claimed))
	}
	var done []storage.Outcome
	for i, r := range taken {
		o := storage.Outcome{ID: r.ID, Kind: storage.Succeed}
		switch i % 4 {
		case 1:
			o.After = -1
		case 2:
			o.After = time.Hour
		case 3:
			o = storage.Outcome{ID: r.ID, Kind: storage.Retry, Attempt: 1, After: time.Hour, Error: "no"}
		}
		done = append(done, o)
	}
	_, err = m.Settle(t.Context(), done...)
	note("settle", err)
	_, err = s.Purge(t.Context(), storage.Purge{Box: storage.Inbox, Version: version, Limit: rows})
	note("purge", err)
	return n
}
