package integration

import (
	"runtime/pprof"
	"testing"
	"time"

	"gorm.io/gorm"
)

// settled waits until no row has anything more to do. It fails when nothing was
// finished for three windows: a row is stuck, not merely waiting its turn on a
// slow machine.
func settled(tb testing.TB, db *gorm.DB, window time.Duration) {
	tb.Helper()
	const final = "SELECT (SELECT count(*) FROM cap_published WHERE expires_at IS NOT NULL) + (SELECT count(*) FROM cap_received WHERE expires_at IS NOT NULL)"
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	done, end := number(tb, db, final), time.Now().Add(3*window)
	for number(tb, db, open) > 0 {
		<-tick.C
		if now := number(tb, db, final); now > done {
			done, end = now, time.Now().Add(3*window)
		}
		if time.Now().After(end) {
			_ = pprof.Lookup("goroutine").WriteTo(logs(), 1)
			tb.Fatalf("%d rows are stuck: none was finished for %s; some of them:\n%q", number(tb, db, open), 3*window, column(tb, db, stuck))
		}
	}
}

// open counts the rows that have something to do.
const open = "SELECT (SELECT count(*) FROM cap_published WHERE due_at IS NOT NULL) + (SELECT count(*) FROM cap_received WHERE due_at IS NOT NULL)"

const stuck = `SELECT concat(name, ' status ', status, ' owner ', coalesce(owner, 0), ' retries ', retries, ' takeovers ', takeovers, ' ', last_error) FROM (
		SELECT name, status, owner, retries, takeovers, due_at, last_error FROM cap_published UNION ALL
		SELECT concat(name, ' ', group_name), status, owner, retries, takeovers, due_at, last_error FROM cap_received
	) AS r WHERE due_at IS NOT NULL LIMIT 20`

// verify checks a finished history against the business tables: they are
// written by the application alone.
func verify(tb testing.TB, db *gorm.DB) {
	tb.Helper()
	none := func(what, query string) {
		tb.Helper()
		if bad := column(tb, db, query+" LIMIT 10"); len(bad) > 0 {
			tb.Errorf("%s: %q", what, bad)
		}
	}
	for _, table := range []string{"effects", "chained", "handled", "retried"} {
		none("committed and never seen in "+table, "SELECT id FROM orders WHERE id NOT IN (SELECT id FROM "+table+")")
		none("seen in "+table+" though rolled back", "SELECT id FROM "+table+" WHERE id NOT IN (SELECT id FROM orders)")
	}
	for _, table := range []string{"effects", "chained", "retried"} {
		none("more than one effect in "+table, "SELECT id FROM "+table+" GROUP BY id HAVING count(*) > 1")
	}
	none("a final state was left", "SELECT box||' '||hex(id) FROM left_final")
	none("message failed for good", "SELECT name||' '||last_error FROM cap_published WHERE status <> 2")
	none("handling failed for good", "SELECT name||' '||group_name||' '||last_error FROM cap_received WHERE status <> 2")
	none("attempts counted wrongly", "SELECT name||' '||retries FROM cap_published WHERE retries <> 0")
	none("attempts counted wrongly", "SELECT name||' '||group_name||' '||retries FROM cap_received WHERE retries <> CASE group_name WHEN 'retried' THEN 2 ELSE 0 END")
	none("orders without a published row", "SELECT id FROM orders WHERE id NOT IN (SELECT json_extract(CAST(body AS TEXT),'$.ID') FROM cap_published)")
	none("published rows without an order", "SELECT json_extract(CAST(body AS TEXT),'$.ID') FROM cap_published WHERE json_extract(CAST(body AS TEXT),'$.ID') NOT IN (SELECT id FROM orders)")
}
