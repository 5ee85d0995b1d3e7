package tracking

import (
	"context"
	"crypto/rand"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/idempotency/gormtracker"
	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/mysql"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/storage/sqlite"
)

// database is a kind of them.
type database struct {
	name   string
	create func(tb testing.TB) (dsn string) // gone after the test
	open   func(dsn string) (*gormstore.Store, error)
}

const conns = 12

func quiet() *gorm.Config { return &gorm.Config{Logger: logger.Discard} }

func databases() []database {
	return []database{
		{
			"sqlite",
			func(tb testing.TB) string { tb.Helper(); return filepath.Join(tb.TempDir(), "tracking.db") },
			func(dsn string) (*gormstore.Store, error) {
				return sqlite.Open(dsn, sqlite.Config{Synchronous: "NORMAL", BusyTimeout: 30 * time.Second, GORM: quiet()})
			},
		},
		{"postgres", postgresDatabase, func(dsn string) (*gormstore.Store, error) {
			return postgres.Open(dsn, postgres.Config{MaxConns: conns, GORM: quiet()})
		}},
		{"mariadb", mariaDBDatabase, func(dsn string) (*gormstore.Store, error) {
			return mysql.Open(dsn, mysql.Config{MaxConns: conns, GORM: quiet()})
		}},
	}
}

func newName() string { return "gocap_tracking_" + strings.ToLower(rand.Text()[:12]) }

// onServer runs a statement past the databases of the tests.
func onServer(tb testing.TB, open func() (*gormstore.Store, error), statement string) {
	tb.Helper()
	server, err := open()
	must(tb, err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Minute)
	defer cancel()
	must(tb, server.DB().WithContext(ctx).Exec(statement).Error)
	must(tb, server.Close())
}

func postgresDatabase(tb testing.TB) string {
	tb.Helper()
	name := newName()
	server := func() (*gormstore.Store, error) {
		return postgres.Open(testenv.Postgres(), postgres.Config{GORM: quiet()})
	}
	onServer(tb, server, "CREATE DATABASE "+name)
	tb.Cleanup(func() { onServer(tb, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	u, err := url.Parse(testenv.Postgres())
	must(tb, err)
	u.Path = "/" + name
	return u.String()
}

func mariaDBDatabase(tb testing.TB) string {
	tb.Helper()
	name := newName()
	server := func() (*gormstore.Store, error) { return mysql.Open(testenv.MySQL(), mysql.Config{GORM: quiet()}) }
	// A collation in which many different texts are the same.
	onServer(tb, server, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
	tb.Cleanup(func() { onServer(tb, server, "DROP DATABASE "+name) })
	return testenv.MySQL() + name
}

// openNew opens a database of the test's own.
func (d database) openNew(tb testing.TB) *gormstore.Store {
	tb.Helper()
	return d.openAt(tb, d.create(tb))
}

func (d database) openAt(tb testing.TB, dsn string) *gormstore.Store {
	tb.Helper()
	store, err := d.open(dsn)
	must(tb, err)
	tb.Cleanup(func() { must(tb, store.Close()) })
	return store
}

// tracker makes one with its table, and a table of effects.
func tracker(tb testing.TB, db *gorm.DB, cfg gormtracker.Config) *gormtracker.Tracker {
	tb.Helper()
	t := gormtracker.New(db, cfg)
	must(tb, t.Migrate(tb.Context()))
	must(tb, db.Exec("CREATE TABLE IF NOT EXISTS effects (id varchar(80) NOT NULL)").Error)
	return t
}

// effects counts those of an id.
func effects(tb testing.TB, db *gorm.DB, id string) int {
	tb.Helper()
	var n int
	must(tb, db.Raw("SELECT count(*) FROM effects WHERE id = ?", id).Scan(&n).Error)
	return n
}

// each runs a test on every database.
func each(t *testing.T, f func(t *testing.T, d database)) {
	t.Helper()
	for _, d := range databases() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			f(t, d)
		})
	}
}
