package mysql_test

import (
	"strconv"
	"testing"

	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/mysql"
	"github.com/capbus/gocap/storage/storagetest"
)

// conform runs the suite on one store: its cases keep apart by their versions.
func conform(t *testing.T, s *gormstore.Store) {
	t.Helper()
	must(t, s.Migrate(t.Context()))
	storagetest.Run(t, func(testing.TB) storage.Storage { return s })
}

func TestConformance(t *testing.T) {
	t.Parallel()
	conform(t, open(t, dsn(t, newDatabase(t, ""))))
}

// TestConformanceInAnotherSchema: the tables are in a database whose name, and
// whose prefix, need quotes; the connection is in another one.
func TestConformanceInAnotherSchema(t *testing.T) {
	t.Parallel()
	schema := newDatabase(t, "-Select é")
	conform(t, open(t, dsn(t, newDatabase(t, "")), func(c *mysql.Config) {
		c.Schema, c.TablePrefix = schema, "Order"
	}))
}

// TestConformanceOfOddSessions: whatever a DSN may set, but autocommit.
func TestConformanceOfOddSessions(t *testing.T) {
	t.Parallel()
	for name, params := range map[string][]string{
		"east": {"time_zone=%27%2B12:00%27", "loc=Asia%2FTokyo", "parseTime=false", "sql_mode=%27ANSI_QUOTES%27"},
		"west": {
			"time_zone=%27-12:00%27", "loc=Local", "clientFoundRows=true", "multiStatements=true", "charset=latin1",
			"sql_mode=%27ANSI,NO_BACKSLASH_ESCAPES,TRADITIONAL%27",
		},
		"prepared": {
			"interpolateParams=false", "charset=latin1", "clientFoundRows=true", "sql_mode=%27%27",
			"tx_isolation=%27SERIALIZABLE%27", "columnsWithAlias=true",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conform(t, open(t, dsn(t, newDatabase(t, ""), params...)))
		})
	}
}

// TestConformanceOfAnOrdinaryPool: a *gorm.DB that the application opened.
func TestConformanceOfAnOrdinaryPool(t *testing.T) {
	t.Parallel()
	for _, prepare := range []bool{false, true} {
		t.Run("prepared="+strconv.FormatBool(prepare), func(t *testing.T) {
			t.Parallel()
			db, err := gorm.Open(gormmysql.Open(dsn(t, newDatabase(t, ""))),
				&gorm.Config{PrepareStmt: prepare, Logger: logger.Discard, TranslateError: true})
			must(t, err)
			pool, err := db.DB()
			must(t, err)
			pool.SetMaxOpenConns(20)
			s := gormstore.New(db, gormstore.Config{})
			t.Cleanup(func() {
				must(t, s.Close())
				must(t, pool.Close())
			})
			conform(t, s)
		})
	}
}

// TestConformanceOnOneConnection for everything; each case has its own.
func TestConformanceOnOneConnection(t *testing.T) {
	t.Parallel()
	one := func(c *mysql.Config) { c.MaxConns = 1 }
	database := newDatabase(t, "")
	must(t, open(t, dsn(t, database), one).Migrate(t.Context()))
	storagetest.Run(t, func(tb testing.TB) storage.Storage {
		tb.Helper()
		return open(tb, dsn(tb, database), one)
	})
}

func BenchmarkStorage(b *testing.B) {
	storagetest.Bench(b, func(b *testing.B) storage.Storage {
		b.Helper()
		return newStore(b)
	})
}
