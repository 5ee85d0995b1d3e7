package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	driver "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/storage/storagetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	runSuite(t, newStore(t, postgres.Config{}))
}

func runSuite(t *testing.T, s *gormstore.Store) {
	t.Helper()
	storagetest.Run(t, func(testing.TB) storage.Storage { return s })
}

// TestConformanceInEveryModeOfTheDriver: what a DSN may ask of pgx.
func TestConformanceInEveryModeOfTheDriver(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			runSuite(t, newStore(t, postgres.Config{}, "default_query_exec_mode="+mode))
		})
	}
}

// TestConformanceOfAnOrdinaryPool: a *gorm.DB that the application opened, in
// another schema, on a server and a session with settings of their own.
func TestConformanceOfAnOrdinaryPool(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]bool{"prepared": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := newDatabase(t, "timezone=Pacific/Kiritimati", "default_transaction_isolation=serializable")
			onServer(t, dsn, `CREATE SCHEMA "Select; Öre-1"`)
			pool, err := sql.Open("pgx", dsn)
			must(t, err)
			t.Cleanup(func() { must(t, pool.Close()) })
			db, err := gorm.Open(driver.New(driver.Config{Conn: pool}), &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
			must(t, err)
			s := gormstore.New(db, gormstore.Config{Schema: "Select; Öre-1", TablePrefix: "user"})
			t.Cleanup(func() { must(t, s.Close()) })
			must(t, s.Migrate(t.Context()))
			runSuite(t, s)
		})
	}
}

var _ = stdlib.GetDefaultDriver // its import names the driver "pgx"

func BenchmarkStorage(b *testing.B) {
	storagetest.Bench(b, func(b *testing.B) storage.Storage {
		b.Helper()
		return newStore(b, postgres.Config{})
	})
}
