package mysql_test

import (
	"database/sql"
	"regexp"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// retained is the number of final rows in each table.
const retained = 100_000

// history fills the outbox with final rows, and a backlog of a tenth, whose
// owners are dead.
func history(tb testing.TB, db *sql.DB) {
	tb.Helper()
	for _, q := range []string{
		"CREATE TABLE n (i INT PRIMARY KEY)",
		"INSERT INTO n WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 1000) SELECT i FROM c",
		"INSERT INTO cap_published (id, version, name, status, due_at, owner, added_at, updated_at, expires_at, size, headers, body)" +
			" SELECT UNHEX(MD5(CONCAT(a.i, ' ', b.i))), 'v1', 'old', IF(b.i > 100, 0, 2), IF(b.i > 100, 1, NULL), IF(b.i > 100, 98, NULL), 1, 1," +
			" IF(b.i > 100, NULL, 9e18), 0, '', '' FROM n AS a JOIN n AS b ON b.i <= 110",
	} {
		_, err := db.ExecContext(tb.Context(), q)
		must(tb, err)
	}
}

// inboxHistory fills the inbox with final rows in the place of the backlog.
func inboxHistory(tb testing.TB, db *sql.DB) {
	tb.Helper()
	for _, q := range []string{
		"UPDATE cap_published SET owner = NULL, due_at = NULL, expires_at = 9e18 WHERE owner = 98",
		"INSERT INTO cap_received (id, version, group_name, subscriber, name, message_id, status, added_at, updated_at, expires_at, size, headers, body)" +
			" SELECT id, version, 'g', IF(seq % 2, 's', ''), name, HEX(id), 2, 1, 1, 9e18, 0, '', '' FROM cap_published WHERE due_at IS NULL",
	} {
		_, err := db.ExecContext(tb.Context(), q)
		must(tb, err)
	}
}

// plans opens a store with much history on one connection that is recorded.
func plans(t *testing.T) (*gormstore.Store, *sql.DB, *recorder) {
	t.Helper()
	s, pool, rec := recorded(t)
	history(t, pool)
	return s, pool, rec
}

func recorded(t *testing.T) (*gormstore.Store, *sql.DB, *recorder) {
	t.Helper()
	c, err := mysqldriver.ParseDSN(dsn(t, newDatabase(t, ""), "interpolateParams=true"))
	must(t, err)
	connector, err := mysqldriver.NewConnector(c)
	must(t, err)
	rec := &recorder{Connector: connector, texts: make(map[string][]any)}
	pool := sql.OpenDB(rec)
	pool.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = pool.Close() })
	db, err := gorm.Open(gormmysql.New(gormmysql.Config{Conn: pool}), &gorm.Config{Logger: logger.Discard})
	must(t, err)
	s := gormstore.New(db, gormstore.Config{})
	t.Cleanup(func() { _ = s.Close() })
	must(t, s.Migrate(t.Context()))
	return s, pool, rec
}

// TestNoStatementScansATable: with much history, before and after an ANALYZE,
// every statement finds its rows through an index, and none sorts rows of a
// table. (What a statement has made itself, a list of at most two limits, it may
// sort.) And as plans are estimates: all of them together read but few rows.
func TestNoStatementScansATable(t *testing.T) {
	t.Parallel()
	s, pool, rec := plans(t)
	inboxHistory(t, pool)
	rec.forget()
	before := rowsRead(t, pool)
	everything(t, s)
	if n := rowsRead(t, pool) - before; n > retained/50 {
		t.Errorf("%d rows were read", n)
	}
	texts := rec.forget()
	if len(texts) < 50 {
		t.Fatalf("only %d statements were seen", len(texts))
	}
	checkPlans(t, pool, texts)
	_, err := pool.ExecContext(t.Context(), "ANALYZE TABLE cap_published, cap_received, cap_instances")
	must(t, err)
	checkPlans(t, pool, texts)
}

// TestABacklogIsReadFromItsBeginning, however long it is.
func TestABacklogIsReadFromItsBeginning(t *testing.T) {
	t.Parallel()
	s, pool, _ := plans(t)
	m := join(t, s, storage.Outbox)
	before := rowsRead(t, pool)
	taken, err := m.TakeOver(t.Context(), outLane(100))
	must(t, err)
	if len(taken) != 100 {
		t.Fatalf("%d rows were taken over", len(taken))
	}
	last := taken[99].Position
	for range 10 {
		due(t, m, outLane(100))
		due(t, m, storage.Query{Lanes: []storage.Lane{{Limit: 100, After: last}}})
	}
	if n := rowsRead(t, pool) - before; n > 8000 {
		t.Errorf("%d rows were read of a backlog of %d", n, retained/10)
	}
}

// rowsRead is how many rows the connection has read so far, by the server's
// count.
func rowsRead(tb testing.TB, db *sql.DB) int {
	tb.Helper()
	rows, err := db.QueryContext(tb.Context(), "SHOW SESSION STATUS LIKE 'Handler\\_read\\_%'")
	must(tb, err)
	defer rows.Close()
	sum := 0
	for rows.Next() {
		var name string
		var n int
		must(tb, rows.Scan(&name, &n))
		sum += n
	}
	must(tb, rows.Err())
	return sum
}

func checkPlans(t *testing.T, db *sql.DB, texts map[string][]any) {
	t.Helper()
	for text, args := range texts {
		word, _, _ := strings.Cut(strings.TrimLeft(text, "("), " ")
		if !strings.Contains("SELECT UPDATE DELETE INSERT", word) || !ours.MatchString(text) {
			continue
		}
		for _, step := range planOf(t, db, text, args) {
			if bad := step.fault(); bad != "" {
				t.Errorf("%s: %+v\n  of %s", bad, step, text)
			}
		}
	}
}

// A scan of the heartbeats, or of what a statement has made itself, is well.
var ours = regexp.MustCompile("`cap_(published|received)`")

type step struct{ table, access, key, extra string }

func (s step) fault() string {
	if s.table == "" || strings.HasPrefix(s.table, "<") || s.table == "o" || s.table == "i" {
		return ""
	}
	switch {
	case s.access == "ALL" || s.access == "index":
		return "it scans"
	case strings.Contains(s.extra, "filesort") || strings.Contains(s.extra, "temporary"):
		return "it sorts"
	}
	return ""
}

func planOf(t *testing.T, db *sql.DB, text string, args []any) []step {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN "+text, args...)
	must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	must(t, err)
	var plan []step
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		must(t, rows.Scan(into...))
		var s step
		for i, c := range columns {
			switch c {
			case "table":
				s.table = values[i].String
			case "type":
				s.access = values[i].String
			case "key":
				s.key = values[i].String
			case "Extra":
				s.extra = values[i].String
			}
		}
		if strings.HasPrefix(strings.TrimLeft(text, "("), "INSERT") {
			continue // it finds nothing
		}
		plan = append(plan, s)
	}
	must(t, rows.Err())
	return plan
}
