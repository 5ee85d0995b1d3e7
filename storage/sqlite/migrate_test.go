package sqlite_test

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
)

// TestManyStartAtOnceOnAnEmptyFile: each opens it, makes the tables and can
// work at once.
func TestManyStartAtOnceOnAnEmptyFile(t *testing.T) {
	t.Parallel()
	const rounds, starters = 3, 20
	for range rounds {
		path := filepath.Join(t.TempDir(), "cap.db")
		errs := make(chan error, starters)
		var wg sync.WaitGroup
		for range starters {
			wg.Go(func() {
				s, err := sqlite.Open(path, sqlite.Config{})
				if err == nil {
					err = s.Migrate(t.Context())
				}
				if err == nil {
					_, err = s.Join(t.Context(), storage.Instance{Box: storage.Outbox, Version: version, Lease: 1e10})
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
		s := open(t, path)
		if n := count(t, s, "SELECT count(*) FROM cap_instances"); n != starters {
			t.Errorf("%d instances", n)
		}
		if n := count(t, s, "SELECT count(*) FROM cap_migrations"); n != steps(t, s) {
			t.Errorf("%d migrations", n)
		}
	}
}

// steps is how many migrations this release has.
func steps(t *testing.T, s *gormstore.Store) int {
	t.Helper()
	list, err := s.Migrations()
	must(t, err)
	return len(list)
}

// TestTablesAreNamedAsConfigured, whatever gorm's own naming is.
func TestTablesAreNamedAsConfigured(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"Shop_", "select", "_x1", strings.Repeat("p", 32)} {
		s := newStore(t, func(c *sqlite.Config) {
			c.TablePrefix = prefix
			c.GORM = &gorm.Config{NamingStrategy: schema.NamingStrategy{TablePrefix: "other_", SingularTable: true}}
		})
		publish(t, s, outgoing(0))
		if n := count(t, s, `SELECT count(*) FROM "`+prefix+`published"`); n != 1 {
			t.Errorf("%s: %d rows", prefix, n)
		}
		n := count(t, s, "SELECT count(*) FROM sqlite_master WHERE name NOT LIKE ? || '%' AND name NOT LIKE 'sqlite_%'", prefix)
		if n != 0 {
			t.Errorf("%s: %d other objects", prefix, n)
		}
	}
}

// TestMigrationsAreUndoneByTheirDownTexts, and may be applied by hand.
func TestMigrationsAreUndoneByTheirDownTexts(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "cap.db"))
	list, err := s.Migrations()
	must(t, err)
	for range 2 {
		for _, m := range list {
			must(t, s.DB().Exec(m.Up).Error)
		}
		must(t, s.Check(t.Context()))
		must(t, s.Migrate(t.Context()))
		for i := range list {
			must(t, s.DB().Exec(list[len(list)-1-i].Down).Error)
		}
		if n := count(t, s, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'cap_%' AND name <> 'cap_migrations'"); n != 0 {
			t.Errorf("%d objects are left", n)
		}
		if n := count(t, s, "SELECT count(*) FROM cap_migrations"); n != 0 {
			t.Errorf("%d steps are recorded", n)
		}
	}
	if err := s.Check(t.Context()); err == nil || !errors.Is(err, gormstore.ErrSchema) || !strings.Contains(err.Error(), "step 1, messages") {
		t.Errorf("check without tables: %v", err)
	}
}

// TestALaterReleasesStepsAreLeftAlone as long as this one works with them.
func TestALaterReleasesStepsAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(t, s.DB().Exec("INSERT INTO cap_migrations VALUES (99, 'later', 1, 0)").Error)
	must(t, s.Migrate(t.Context()))
	must(t, s.Check(t.Context()))
	if n := count(t, s, "SELECT count(*) FROM cap_migrations"); n != steps(t, s)+1 {
		t.Errorf("%d steps", n)
	}
	must(t, s.DB().Exec("INSERT INTO cap_migrations VALUES (100, 'much_later', 98, 0)").Error)
	for _, err := range []error{s.Migrate(t.Context()), s.Check(t.Context())} {
		if !errors.Is(err, gormstore.ErrSchema) || !strings.Contains(err.Error(), "step 100, much_later") {
			t.Error(err)
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
	for _, n := range []int{-1, 100} {
		if err := s.MigrateDown(t.Context(), n); err == nil {
			t.Errorf("down to %d is no error", n)
		}
	}
}

func TestAnotherEncodingIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, ":memory:")
	must(t, s.DB().Exec("PRAGMA encoding = 'UTF-16le'").Error)
	must(t, s.DB().Exec("CREATE TABLE x (a)").Error)
	for _, err := range []error{s.Migrate(t.Context()), s.Check(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "UTF-16") {
			t.Error(err)
		}
	}
}

// TestMissingTablesAreSaidToBeMissing, and not that the transaction has ended: it
// may be one of another database.
func TestMissingTablesAreSaidToBeMissing(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "cap.db"))
	err := appendTo(t.Context(), s, outgoing(0))
	if !errors.Is(err, gormstore.ErrSchema) || errors.Is(err, storage.ErrTxDone) || !strings.Contains(err.Error(), "Migrate") {
		t.Errorf("append without tables: %v, want ErrSchema and what makes them", err)
	}
	if _, err := s.Begin(t.Context()); !errors.Is(err, gormstore.ErrSchema) {
		t.Errorf("begin without tables: %v, want ErrSchema", err)
	}
}
