package integration

import (
	"database/sql"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/mysql"
)

func TestMariaDBRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	// Without a binary log the server shows others what it may yet lose: of a
	// message that was sent already, the order may be gone.
	server := testenv.StartMariaDB(t, "log-bin=binlog", "sync-binlog=1")
	store := mariaDBStore(t, server.DSN)
	// It takes a fraction of a second; the race detector on a busy machine, more.
	restarted(t, server, store, func() { mariaDBAnswers(t, server.DSN) }, 10*time.Second)
}

// mariaDBStore opens a store on a server of the test's own, with business tables.
func mariaDBStore(tb testing.TB, dsn string) *gormstore.Store {
	tb.Helper()
	admin, err := sql.Open("mysql", dsn)
	must(tb, err)
	_, err = admin.ExecContext(tb.Context(), "CREATE DATABASE shop")
	must(tb, err)
	must(tb, admin.Close())
	store, err := mysql.Open(dsn+"shop", mysql.Config{GORM: &gorm.Config{Logger: logger.Discard}})
	must(tb, err)
	tb.Cleanup(func() { must(tb, store.Close()) })
	for _, q := range []string{"CREATE TABLE orders (id varchar(80) PRIMARY KEY)", "CREATE TABLE effects (id varchar(80))"} {
		must(tb, store.DB().Exec(q).Error)
	}
	return store
}

// mariaDBAnswers waits until an independent client has an answer.
func mariaDBAnswers(tb testing.TB, dsn string) {
	tb.Helper()
	for {
		db, err := sql.Open("mysql", dsn)
		must(tb, err)
		_, err = db.ExecContext(tb.Context(), "DO 1")
		must(tb, db.Close())
		if err == nil || tb.Context().Err() != nil {
			must(tb, err)
			return
		}
	}
}
