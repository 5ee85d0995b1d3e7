package integration

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC189CredentialsRotate: a bus on a pool of the application's has no
// connection and no credentials of its own. When these change, and all
// connections are cut, it goes on with what the pool makes.
func TestC189CredentialsRotate(t *testing.T) {
	t.Parallel()
	for name, pool := range map[string]func(t *testing.T) (dialector gorm.Dialector, rotate func()){
		"postgres": rotatingPostgres, "mariadb": rotatingMariaDB,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dialector, rotate := pool(t)
			db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
			must(t, err)
			store := gormstore.New(db, gormstore.Config{})
			t.Cleanup(func() { must(t, store.Close()) })
			var j journal
			bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}), serving(inGroup("t", j.handle))))
			want := publishAll(t, bus, "t", 0, 20)
			j.waitFor(t, want)
			rotate()
			since := time.Now()
			for i := range 20 {
				id := fmt.Sprint("after ", i)
				want = append(want, id)
				eventually(t, "it is published", func() bool { // the pool may hand out a connection that is cut
					return bus.Publish(t.Context(), cap.NoTx, "t", id) == nil
				})
			}
			j.waitFor(t, want)
			t.Logf("it went on within %s", time.Since(since))
			settled(t, db, window)
			j.exactly(t, want)
		})
	}
}

func rotatingPostgres(t *testing.T) (dialector gorm.Dialector, rotate func()) {
	t.Helper()
	role := "gocap_role_" + strings.ToLower(rand.Text()[:10])
	onPostgres(t, testenv.Postgres(), "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() { onPostgres(t, testenv.Postgres(), "DROP ROLE "+role) })
	dsn := postgresDatabase(t)
	cfg, err := pgx.ParseConfig(dsn)
	must(t, err)
	onPostgres(t, dsn, "GRANT ALL ON SCHEMA public TO "+role)
	var user atomic.Value
	user.Store(role)
	pool := stdlib.OpenDB(*cfg, stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) error {
		c.User, _ = user.Load().(string)
		return nil
	}))
	t.Cleanup(func() { must(t, pool.Close()) })
	return postgres.New(postgres.Config{Conn: pool}), func() {
		next := role + "2" // the server of the tests asks nobody for a password
		onPostgres(t, dsn, "ALTER ROLE "+role+" RENAME TO "+next)
		role = next
		user.Store(next)
		onPostgres(t, dsn, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	}
}

func rotatingMariaDB(t *testing.T) (dialector gorm.Dialector, rotate func()) {
	t.Helper()
	cfg := mariaDB(t)
	connector, err := driver.NewConnector(cfg.Clone())
	must(t, err)
	admin := sql.OpenDB(connector)
	exec := func(query string, args ...any) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		_, err := admin.ExecContext(ctx, fmt.Sprintf(query, args...))
		must(t, err)
	}
	user := "gocap_" + strings.ToLower(rand.Text()[:10])
	var password atomic.Value
	password.Store(rand.Text())
	exec("CREATE USER %s IDENTIFIED BY '%s'", user, password.Load())
	t.Cleanup(func() {
		exec("DROP USER %s", user)
		must(t, admin.Close())
	})
	exec("GRANT ALL ON %s.* TO %s", cfg.DBName, user)
	own := cfg.Clone()
	own.User, own.InterpolateParams = user, true
	must(t, own.Apply(driver.BeforeConnect(func(_ context.Context, c *driver.Config) error {
		c.Passwd, _ = password.Load().(string)
		return nil
	})))
	connector, err = driver.NewConnector(own)
	must(t, err)
	pool := sql.OpenDB(connector)
	t.Cleanup(func() { must(t, pool.Close()) })
	return mysql.New(mysql.Config{Conn: pool}), func() {
		next := rand.Text()
		exec("ALTER USER %s IDENTIFIED BY '%s'", user, next)
		password.Store(next)
		exec("KILL USER %s", user)
	}
}
