package postgres_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// everything runs each operation of the store, on few rows.
func everything(t *testing.T, s *gormstore.Store) {
	t.Helper()
	out, in := join(t, s, storage.Outbox), join(t, s, storage.Inbox)
	gone, lost := join(t, s, storage.Outbox), join(t, s, storage.Inbox)
	must(t, s.Check(t.Context()))
	given := outgoing(gone.Number())
	given.GivenID = true
	publish(t, s, given, outgoing(0), outgoing(gone.Number()))
	unmatched := incoming("u")
	unmatched.Subscriber = ""
	for _, r := range []*storage.Record{incoming("1"), incoming("2"), unmatched} {
		_, err := lost.Accept(t.Context(), r)
		must(t, err)
	}
	must(t, gone.Leave(t.Context()))
	must(t, lost.Leave(t.Context()))
	two := storage.Query{Lanes: []storage.Lane{
		{Group: "g", Subscriber: "s", Limit: 1, After: storage.Position{DueAt: time.Now().Add(-time.Hour), Seq: 1}},
		{Group: "g", Subscriber: "t", Limit: 1},
	}}
	stale := two
	stale.Stale = time.Microsecond
	glance(t, out, storage.GlanceQuery{Lanes: outLane(5).Lanes, Keys: outLane(5).Lanes})
	glance(t, in, storage.GlanceQuery{Lanes: two.Lanes, Keys: two.Lanes, Groups: []string{"g"}})
	for _, q := range []storage.Query{two, inLane(5), stale, {IDs: []storage.ID{given.ID, given.ID}}} {
		taken, err := in.TakeOver(t.Context(), q)
		must(t, err)
		due(t, in, q)
		_, err = in.Claim(t.Context(), taken...)
		must(t, err)
	}
	settleAll(t, out)
	tidy(t, s, in)
	must(t, out.Beat(t.Context()))
}

func glance(t *testing.T, m storage.Member, q storage.GlanceQuery) {
	t.Helper()
	_, err := m.(storage.Glancer).Glance(t.Context(), q)
	must(t, err)
}

func settleAll(t *testing.T, out storage.Member) {
	t.Helper()
	taken, err := out.TakeOver(t.Context(), outLane(5))
	must(t, err)
	if len(taken) != 3 {
		t.Fatalf("taken over: %v", taken)
	}
	due(t, out, outLane(5))
	_, err = out.Settle(t.Context(),
		storage.Outcome{ID: taken[0].ID, Kind: storage.Succeed},
		storage.Outcome{ID: taken[1].ID, Kind: storage.Succeed, After: -1},
		storage.Outcome{ID: taken[2].ID, Kind: storage.Fail, Error: "no"})
	must(t, err)
}

func tidy(t *testing.T, s *gormstore.Store, in storage.Member) {
	t.Helper()
	rows, err := in.Unmatched(t.Context(), []string{"g", "h"}, 0, 5)
	must(t, err)
	for _, r := range rows {
		_, err = in.Split(t.Context(), r, incoming("u"))
		must(t, err)
	}
	for _, b := range []storage.Box{storage.Outbox, storage.Inbox} {
		_, err = s.Waiting(t.Context(), b, version, 5)
		must(t, err)
		_, err = s.Versions(t.Context(), b, 5)
		must(t, err)
		_, err = s.Purge(t.Context(), storage.Purge{Box: b, Version: version, Limit: 5})
		must(t, err)
	}
}

// retained is the history of the tests: a fraction of what a service has, enough
// for the planner to prefer the wrong plans.
const retained = 40_000

// history fills both tables with final rows, and a backlog of a fifth, half of
// it without an owner, and half of it with one of 500 keys.
var history = []string{ //nolint:gochecknoglobals // texts
	`INSERT INTO cap_published (id, version, name, ordering_key, status, due_at, owner, added_at, updated_at, expires_at, headers, body)
	SELECT gen_random_uuid(), 'v1', 'old', CASE WHEN i > $1::int AND i % 4 < 2 THEN ('k' || i % 500)::bytea END, CASE WHEN i > $1::int THEN 0 ELSE 2 END,
	CASE WHEN i > $1 THEN now() - i * interval '1 ms' END, CASE WHEN i > $1 AND i % 2 = 0 THEN 99 END, now(), now(),
	CASE WHEN i <= $1 THEN now() + i * interval '1 s' END, '{}', '{}' FROM generate_series(1, $1 * 12 / 10) AS i`,
	`INSERT INTO cap_received (id, version, group_name, subscriber, name, message_id, ordering_key, status, due_at, owner, added_at,
	updated_at, expires_at, headers, body)
	SELECT id, version, 'g', 's', name, id::text::bytea, ordering_key, status, due_at, owner, added_at, added_at, expires_at, '{}', '{}'
	FROM cap_published LIMIT $1 * 12 / 10`,
}

// grown makes a store whose tables have grown since they were empty, nobody
// having analyzed them; it returns the statements that the store runs.
func grown(t *testing.T) (*gormstore.Store, *pgx.Conn, []statement) {
	t.Helper()
	dsn := newDatabase(t)
	rec := &recorder{}
	s := onPool(t, dsn, gormstore.Config{Unprepared: pgx.QueryExecModeExec}, rec.trace)
	must(t, s.Migrate(t.Context()))
	rec.taken()
	everything(t, s)
	var list []statement
	texts := make(map[string]bool)
	for _, q := range rec.taken() {
		if !strings.HasSuffix(q.text, " LIMIT 0") && strings.Contains("SELECT WITH UPDATE DELETE INSERT", q.word()) && !texts[q.text] {
			texts[q.text] = true
			list = append(list, q)
		}
	}
	if len(list) < 22 {
		t.Fatalf("only %d statements were seen", len(list))
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	t.Cleanup(func() { must(t, conn.Close(context.WithoutCancel(t.Context()))) })
	// As on a server where autovacuum comes too late.
	for _, table := range []string{"cap_published", "cap_received"} {
		_, err = conn.Exec(t.Context(), `ALTER TABLE `+table+` SET (autovacuum_enabled = false)`)
		must(t, err)
	}
	for _, q := range history {
		_, err = conn.Exec(t.Context(), q, retained)
		must(t, err)
	}
	return s, conn, list
}

// TestNoStatementScansATable: with much history, before and after an ANALYZE,
// every statement finds its rows through an index, and none sorts a table.
func TestNoStatementScansATable(t *testing.T) {
	t.Parallel()
	_, conn, list := grown(t)
	checkPlans(t, conn, list, "never analyzed")
	_, err := conn.Exec(t.Context(), `ANALYZE`)
	must(t, err)
	checkPlans(t, conn, list, "analyzed")
	// All rows without an owner are final now: the planner knows that most have
	// none, not that there is nothing to find among them.
	_, err = conn.Exec(t.Context(), `DELETE FROM cap_published WHERE due_at IS NOT NULL`)
	must(t, err)
	_, err = conn.Exec(t.Context(), `DELETE FROM cap_received WHERE due_at IS NOT NULL`)
	must(t, err)
	_, err = conn.Exec(t.Context(), `ANALYZE`)
	must(t, err)
	checkPlans(t, conn, list, "analyzed without a backlog")
}

// A scan of the heartbeats, or of what a statement has made itself, is well. So
// is a sort of those, and of rows found by their keys.
var sorts = regexp.MustCompile(`Sort Key:.*(due_at|expires_at|owner|subscriber)`)

var scans = regexp.MustCompile(`Seq Scan on cap_(published|received)|Bitmap Index Scan on \w+_(due|expiry|key|unowned)|JIT`)

func checkPlans(t *testing.T, conn *pgx.Conn, list []statement, state string) {
	t.Helper()
	for _, q := range list {
		if plan := planOf(t, conn, q); scans.MatchString(plan) || sorts.MatchString(plan) {
			t.Errorf("%s, plan of %s:\n%s", state, q.text, plan)
		}
	}
}

func planOf(t *testing.T, conn *pgx.Conn, q statement) string {
	t.Helper()
	rows, err := conn.Query(t.Context(), "EXPLAIN "+q.text, append([]any{pgx.QueryExecModeExec}, q.args...)...)
	must(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return strings.Join(plan, "\n")
}
