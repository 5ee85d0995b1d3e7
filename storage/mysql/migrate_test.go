package mysql_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/mysql"
)

// TestManyStartAtOnceOnAnEmptyDatabase: each opens it, makes the tables and can
// work at once. The odd ones have a single connection.
func TestManyStartAtOnceOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	const starters = 20
	database := newDatabase(t, "")
	errs := make(chan error, starters)
	var wg sync.WaitGroup
	for i := range starters {
		wg.Go(func() {
			s, err := mysql.Open(dsn(t, database), mysql.Config{MaxConns: 2 - i%2})
			if err == nil {
				err = s.Migrate(t.Context())
			}
			if err == nil {
				_, err = s.Join(t.Context(), storage.Instance{Box: storage.Outbox, Version: version, Lease: time.Minute})
			}
			if s != nil {
				err = errors.Join(err, s.Close())
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		must(t, err)
	}
	s := open(t, dsn(t, database))
	if n := count(t, s, "SELECT count(*) FROM cap_instances"); n != starters {
		t.Errorf("%d instances", n)
	}
	if n := count(t, s, "SELECT count(*) FROM cap_migrations"); n != len(steps(t, s)) {
		t.Errorf("%d migrations", n)
	}
}

// TestAStepThatWasCutShortIsMadeAgain: a statement that makes a table commits,
// so that a crash leaves a part of a step.
func TestAStepThatWasCutShortIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := open(t, dsn(t, newDatabase(t, "")))
	list := steps(t, s)
	for i, m := range list {
		must(t, s.MigrateDown(t.Context(), i))
		statements := strings.SplitAfter(m.Up, ";\n")
		for n := range len(statements) - 1 {
			for _, q := range statements[:n] {
				must(t, s.DB().Exec(q).Error)
			}
			must(t, s.Migrate(t.Context()))
			must(t, s.Check(t.Context()))
			must(t, s.MigrateDown(t.Context(), i))
		}
	}
	must(t, s.Migrate(t.Context()))
	publish(t, s, outgoing(0))
}

// TestAStepBackThatWasCutShortIsMadeAgain: what was dropped is not missed.
func TestAStepBackThatWasCutShortIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	list := steps(t, s)
	for i := len(list) - 1; i >= 0; i-- {
		first, _, _ := strings.Cut(list[i].Down, ";\n")
		must(t, s.DB().Exec(first).Error)
		must(t, s.MigrateDown(t.Context(), i))
	}
	must(t, s.Migrate(t.Context()))
	must(t, s.Check(t.Context()))
}

func steps(tb testing.TB, s *gormstore.Store) []gormstore.Migration {
	tb.Helper()
	list, err := s.Migrations()
	must(tb, err)
	return list
}

// TestAUserWithoutRightsToMakeTables starts where they are there, and is told
// which step is missing where they are not.
func TestAUserWithoutRightsToMakeTables(t *testing.T) {
	t.Parallel()
	database := newDatabase(t, "")
	db := admin(t)
	user := database // at most 32 characters
	for _, q := range []string{
		"CREATE USER '" + user + "'@'%' IDENTIFIED BY 'secret'",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON `" + database + "`.* TO '" + user + "'@'%'",
	} {
		_, err := db.ExecContext(t.Context(), q)
		must(t, err)
	}
	t.Cleanup(func() {
		_, err := db.Exec("DROP USER '" + user + "'@'%'")
		must(t, err)
	})
	c, err := driver.ParseDSN(dsn(t, database))
	must(t, err)
	c.User, c.Passwd = user, "secret"
	limited := open(t, c.FormatDSN())
	if err := limited.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "step 1, messages") {
		t.Errorf("migrate without rights: %v", err)
	}
	if err := limited.Check(t.Context()); !errors.Is(err, gormstore.ErrSchema) || !strings.Contains(err.Error(), "step 1, messages") {
		t.Errorf("check without tables: %v", err)
	}
	must(t, open(t, dsn(t, database)).Migrate(t.Context()))
	must(t, limited.Migrate(t.Context()))
	must(t, limited.Check(t.Context()))
	everything(t, limited)
}

// TestTablesAreNamedAsConfigured, whatever gorm's own naming is, and whoever has
// tables whose names differ by case alone.
func TestTablesAreNamedAsConfigured(t *testing.T) {
	t.Parallel()
	database := newDatabase(t, "")
	total := 0
	for _, prefix := range []string{"shop_", "Shop_", "select", "_x1", strings.Repeat("p", 32)} {
		s := open(t, dsn(t, database), func(c *mysql.Config) {
			c.TablePrefix = prefix
			c.GORM = &gorm.Config{
				Logger:         logger.Discard,
				NamingStrategy: schema.NamingStrategy{TablePrefix: "other_", SingularTable: true},
			}
		})
		must(t, s.Migrate(t.Context()))
		publish(t, s, outgoing(0))
		if n := count(t, s, "SELECT count(*) FROM `"+prefix+"published`"); n != 1 {
			t.Errorf("%s: %d rows", prefix, n)
		}
		total += 5
		n := count(t, s, "SELECT count(*) FROM information_schema.tables WHERE table_schema = ?", database)
		if n != total {
			t.Errorf("%s: %d tables in all, want %d", prefix, n, total)
		}
	}
}

// TestMigrationsAreUndoneByTheirDownTexts, and may be applied by hand.
func TestMigrationsAreUndoneByTheirDownTexts(t *testing.T) {
	t.Parallel()
	s := open(t, dsn(t, newDatabase(t, ""), "multiStatements=true"))
	list := steps(t, s)
	for range 2 {
		for _, m := range list {
			must(t, s.DB().Exec(m.Up).Error)
		}
		must(t, s.Check(t.Context()))
		must(t, s.Migrate(t.Context()))
		for i := range list {
			must(t, s.DB().Exec(list[len(list)-1-i].Down).Error)
		}
		if n := count(t, s, "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()"); n != 1 {
			t.Errorf("%d tables are left, want that of the steps alone", n)
		}
		if n := count(t, s, "SELECT count(*) FROM cap_migrations"); n != 0 {
			t.Errorf("%d steps are recorded", n)
		}
	}
}

func TestMigrateDownAndUpAgain(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	publish(t, s, outgoing(0))
	must(t, s.MigrateDown(t.Context(), 1))
	if err := s.Check(t.Context()); !errors.Is(err, gormstore.ErrSchema) {
		t.Errorf("check without the last step: %v", err)
	}
	must(t, s.Migrate(t.Context()))
	must(t, s.Check(t.Context()))
	if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 1 {
		t.Errorf("%d rows are left", n)
	}
	must(t, s.MigrateDown(t.Context(), 0))
	must(t, s.Migrate(t.Context()))
	if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 0 {
		t.Errorf("%d rows are there", n)
	}
}

func TestMigrateNeedsADatabase(t *testing.T) {
	t.Parallel()
	s := open(t, dsn(t, ""))
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "Config.Schema") {
		t.Errorf("migrate without a database: %v", err)
	}
}

// TestMissingTablesAreSaidToBeMissing, and not that the transaction has ended: it
// may be one of another database.
func TestMissingTablesAreSaidToBeMissing(t *testing.T) {
	t.Parallel()
	s := open(t, dsn(t, newDatabase(t, "")))
	err := tryToPublish(t.Context(), s, outgoing(0))
	if !errors.Is(err, gormstore.ErrSchema) || errors.Is(err, storage.ErrTxDone) || !strings.Contains(err.Error(), "Migrate") {
		t.Errorf("append without tables: %v, want ErrSchema and what makes them", err)
	}
}
