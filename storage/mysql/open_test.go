package mysql_test

import (
	"net"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/mysql"
)

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]mysql.Config{
		"MaxConns":    {MaxConns: -1},
		"DryRun":      {GORM: &gorm.Config{DryRun: true}},
		"Dialector":   {GORM: &gorm.Config{Dialector: gormmysql.Open("")}},
		"TablePrefix": {TablePrefix: "1"},
		"Schema":      {Schema: "a`b"},
	} {
		if s, err := mysql.Open(server(), cfg); err == nil || s != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("open with a wrong %s: %v", want, err)
		}
	}
}

// TestErrorsHideThePassword of a DSN that is wrong, and of one where no server
// answers.
func TestErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	nobody := l.Addr().String()
	must(t, l.Close())
	for _, text := range []string{
		"user:geheim@tcp(" + nobody + ")/x", "user:geheim@tcp(" + nobody + "/x", "user:geheim", "user:geheim@/x?parseTime=maybe",
	} {
		_, err := mysql.Open(text, mysql.Config{GORM: &gorm.Config{Logger: logger.Discard}})
		if err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("open %s: %v", text, err)
		}
	}
}

// TestTheDSNRules over what Open sets by itself.
func TestTheDSNRules(t *testing.T) {
	t.Parallel()
	database := newDatabase(t, "")
	for _, c := range []struct {
		params []string
		want   any
	}{
		{nil, time.Time{}},
		{[]string{"parseTime=false"}, []byte{}},
	} {
		var got any
		must(t, open(t, dsn(t, database, c.params...)).DB().Raw("SELECT NOW()").Row().Scan(&got))
		if _, isTime := got.(time.Time); isTime != (c.want == time.Time{}) {
			t.Errorf("%v: a moment is read as a %T", c.params, got)
		}
	}
	for params, prepared := range map[string]int{"interpolateParams=false": 1, "interpolateParams=true": 0, "loc=UTC": 0} {
		s := open(t, dsn(t, database, params), func(c *mysql.Config) { c.MaxConns = 1 })
		before := status(t, s)
		must(t, s.DB().Exec("DO ?", 1).Error)
		if n := status(t, s) - before; n != prepared {
			t.Errorf("%s: %d statements were prepared, want %d", params, n, prepared)
		}
	}
}

// status is how often the connection has prepared a statement.
func status(t *testing.T, s *gormstore.Store) int {
	t.Helper()
	var name string
	var n int
	must(t, s.DB().Raw("SHOW SESSION STATUS LIKE 'Com_stmt_prepare'").Row().Scan(&name, &n))
	return n
}

func TestAutocommitIsNeeded(t *testing.T) {
	t.Parallel()
	s := open(t, dsn(t, newDatabase(t, ""), "autocommit=0"))
	for _, err := range []error{s.Check(t.Context()), s.Migrate(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "autocommit") {
			t.Errorf("without autocommit: %v", err)
		}
	}
}

// TestMomentsAreThoseOfTheServer, not shifted by a time zone.
func TestMomentsAreThoseOfTheServer(t *testing.T) {
	t.Parallel()
	database := newDatabase(t, "")
	must(t, open(t, dsn(t, database)).Migrate(t.Context()))
	east := open(t, dsn(t, database, "time_zone=%27%2B12:00%27", "loc=Asia%2FTokyo"))
	west := open(t, dsn(t, database, "time_zone=%27-12:00%27", "loc=America%2FNew_York", "interpolateParams=false"))
	m := join(t, east, storage.Outbox)
	at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	rec := outgoing(m.Number())
	rec.DueAt = at
	publish(t, west, rec)
	recs, _, err := m.Due(t.Context(), storage.Query{IDs: []storage.ID{rec.ID}})
	must(t, err)
	if len(recs) != 1 || !recs[0].Position.DueAt.Equal(at) || recs[0].Age > time.Minute {
		t.Errorf("due at %v, read as %+v", at, recs)
	}
	_, next, err := m.Due(t.Context(), outLane(1))
	must(t, err)
	if next < 59*time.Minute || next > 61*time.Minute {
		t.Errorf("the next row is due in %v, want an hour", next)
	}
}

// TestMaxTxLeavesConnections to the engines.
func TestMaxTxLeavesConnections(t *testing.T) {
	t.Parallel()
	for conns, want := range map[int]int{0: mysql.DefaultMaxConns - 2, 1: 1, 2: 1, 3: 1, 10: 8} {
		s := open(t, dsn(t, ""), func(c *mysql.Config) { c.MaxConns = conns })
		if n := s.MaxTx(); n != want {
			t.Errorf("of %d connections %d may be in transactions, want %d", conns, n, want)
		}
	}
	c, err := driver.ParseDSN(dsn(t, ""))
	must(t, err)
	db, err := gorm.Open(gormmysql.Open(c.FormatDSN()), &gorm.Config{Logger: logger.Discard})
	must(t, err)
	pool, err := db.DB()
	must(t, err)
	t.Cleanup(func() { must(t, pool.Close()) })
	if n := gormstore.New(db, gormstore.Config{}).MaxTx(); n != 0 {
		t.Errorf("of a pool without a bound %d", n)
	}
}
