package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libtnb/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// recorder notes the statements that a pool runs.
type recorder struct {
	base driver.Driver
	dsn  string

	mu    sync.Mutex
	texts map[string]bool
}

func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts[text] = true
}

func (r *recorder) Driver() driver.Driver { return r.base }

func (r *recorder) Connect(context.Context) (driver.Conn, error) {
	c, err := r.base.Open(r.dsn)
	if err != nil {
		return nil, err
	}
	return &noted{c.(fullConn), r}, nil
}

type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

type noted struct {
	fullConn

	r *recorder
}

func (c *noted) PrepareContext(ctx context.Context, q string) (driver.Stmt, error) {
	c.r.note(q)
	return c.fullConn.PrepareContext(ctx, q)
}

func (c *noted) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	c.r.note(q)
	return c.fullConn.ExecContext(ctx, q, args)
}

func (c *noted) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	c.r.note(q)
	return c.fullConn.QueryContext(ctx, q, args)
}

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
	tidy(t, s, in)
	must(t, out.Beat(t.Context()))
	heads(t, s, out, in)
}

// heads runs what is about rows with a key.
func glance(t *testing.T, m storage.Member, q storage.GlanceQuery) {
	t.Helper()
	_, err := m.(storage.Glancer).Glance(t.Context(), q)
	must(t, err)
}

func heads(t *testing.T, s *gormstore.Store, out, in storage.Member) {
	t.Helper()
	gone := join(t, s, storage.Inbox)
	for i, key := range []string{"a", "a", "b"} {
		o, r := outgoing(0), incoming(key+strconv.Itoa(i))
		o.Key, r.Key = key, key
		publish(t, s, o)
		_, err := gone.Accept(t.Context(), r)
		must(t, err)
	}
	must(t, gone.Leave(t.Context()))
	for m, q := range map[storage.Member]storage.HeadQuery{out: {}, in: {Group: "g", Subscriber: "s"}} {
		q.Limit = 10
		found, err := m.Heads(t.Context(), q)
		must(t, err)
		q.Keys = []string{"a", "b", "c"}
		asked, err := m.Heads(t.Context(), q)
		must(t, err)
		if len(found) != 2 || len(asked) != 2 {
			t.Fatalf("heads: %v, asked for: %v", found, asked)
		}
	}
	q := inLane(5)
	q.Stale = time.Microsecond
	taken, err := in.TakeOver(t.Context(), q)
	must(t, err)
	if len(taken) != 2 {
		t.Fatalf("stale: %v", taken)
	}
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

// history fills both tables with final rows, and the outbox with a backlog of a
// tenth.
const history = `INSERT INTO "cap_published"
  (id, version, name, status, due_at, owner, added_at, updated_at, expires_at, headers, body)
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 * 11 / 10)
  SELECT randomblob(16), 'v1', 'old', iif(i > ?1, 0, 2), iif(i > ?1, 1, NULL), iif(i > ?1, 99, NULL), 1, 1,
    iif(i > ?1, NULL, 9e18), x'', x'' FROM n;
INSERT INTO "cap_received" (id, version, group_name, subscriber, name, message_id, status, added_at, updated_at,
  expires_at, headers, body)
  SELECT id, version, 'g', 's', name, hex(id), 2, 1, 1, 9e18, x'', x'' FROM "cap_published" LIMIT ?1`

// recorded opens a store with its tables, whose statements are noted from now on.
func recorded(t *testing.T) (*recorder, *sql.DB, *gormstore.Store) {
	t.Helper()
	rec := &recorder{
		dsn:   "file:" + filepath.Join(t.TempDir(), "cap.db") + "?_txlock=immediate&_busy_timeout=5000&_journal_mode=WAL",
		texts: make(map[string]bool),
	}
	base, err := sql.Open(sqlite.DriverName, rec.dsn)
	must(t, err)
	rec.base = base.Driver()
	must(t, base.Close())
	pool := sql.OpenDB(rec)
	t.Cleanup(func() { _ = pool.Close() })
	db, err := gorm.Open(sqlite.New(sqlite.Config{Conn: pool}), &gorm.Config{Logger: logger.Discard})
	must(t, err)
	s := gormstore.New(db, gormstore.Config{})
	t.Cleanup(func() { _ = s.Close() })
	must(t, s.Migrate(t.Context()))
	rec.texts = make(map[string]bool)
	return rec, pool, s
}

// TestNoStatementScansATable: with much history, before and after an ANALYZE,
// every statement finds its rows through an index, and none sorts.
func TestNoStatementScansATable(t *testing.T) {
	t.Parallel()
	rec, pool, s := recorded(t)
	everything(t, s)
	texts := rec.texts
	rec.texts = make(map[string]bool)
	if len(texts) < 25 {
		t.Fatalf("only %d statements were seen", len(texts))
	}
	_, err := pool.ExecContext(t.Context(), history, retained)
	must(t, err)
	checkPlans(t, pool, texts)
	_, err = pool.ExecContext(t.Context(), "ANALYZE")
	must(t, err)
	checkPlans(t, pool, texts)
}

// A scan of the heartbeats, or of what a statement has made itself, is well.
var (
	scans = regexp.MustCompile(`SCAN ("?cap_(published|received)|r\b)`)
	sorts = regexp.MustCompile(`USE TEMP B-TREE|SCAN .*AUTOMATIC`)
)

func checkPlans(t *testing.T, db *sql.DB, texts map[string]bool) {
	t.Helper()
	for text := range texts {
		word, _, _ := strings.Cut(text, " ")
		if !strings.Contains("SELECT WITH UPDATE DELETE INSERT", word) {
			continue
		}
		all := planOf(t, db, text)
		if scans.MatchString(all) || sorts.MatchString(all) {
			t.Errorf("plan of %s:\n  %s", text, all)
		}
	}
}

func planOf(t *testing.T, db *sql.DB, text string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, make([]any, strings.Count(text, "?"))...)
	must(t, err)
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		must(t, rows.Scan(&id, &parent, &unused, &detail))
		plan = append(plan, detail)
	}
	must(t, rows.Err())
	return strings.Join(plan, "\n  ")
}
