package postgres_test

import (
	"net/url"
	"testing"

	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/storage"
)

// behindPgBouncer returns the DSN of a database behind a pooler in transaction
// mode, which has fewer connections than there are clients.
func behindPgBouncer(t *testing.T, settings ...string) string {
	t.Helper()
	dsn := newDatabase(t)
	b := testenv.StartPgBouncer(t, dsn, append([]string{"default_pool_size=8"}, settings...)...)
	u, err := url.Parse(dsn)
	must(t, err)
	u.Host, u.User = b.Addr, url.User("postgres")
	u.RawQuery = "sslmode=disable&default_query_exec_mode=exec"
	return u.String()
}

// TestConformanceBehindPgBouncer in transaction mode, which gives each
// transaction another session.
func TestConformanceBehindPgBouncer(t *testing.T) {
	t.Parallel()
	s := open(t, behindPgBouncer(t), quiet())
	must(t, s.Migrate(t.Context()))
	runSuite(t, s)
}

// TestPgBouncerThatRestarts: connections are lost, and nothing else.
func TestPgBouncerThatRestarts(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	b := testenv.StartPgBouncer(t, dsn)
	u, err := url.Parse(dsn)
	must(t, err)
	u.Host, u.User, u.RawQuery = b.Addr, url.User("postgres"), "sslmode=disable&default_query_exec_mode=exec"
	s := open(t, u.String(), quiet())
	must(t, s.Migrate(t.Context()))
	m := join(t, s, storage.Outbox)
	publish(t, s, outgoing(m.Number()))
	must(t, b.Restart(t.Context()))
	for {
		got, _, err := m.Due(t.Context(), outLane(5))
		if err == nil && len(got) == 1 {
			break
		}
		if t.Context().Err() != nil || err == nil {
			t.Fatalf("%d rows: %v", len(got), err)
		}
	}
	must(t, m.Beat(t.Context()))
}
