package tracking

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"gorm.io/gorm"

	"github.com/capbus/gocap/idempotency"
	"github.com/capbus/gocap/idempotency/gormtracker"
)

func nothing(context.Context) error { return nil }

func TestManyMigrateAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		db := d.openNew(t).DB()
		tr := gormtracker.New(db, gormtracker.Config{})
		if err := tr.Once(t.Context(), "a", nothing); err == nil {
			t.Error("without a table, Once returns nil")
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := tr.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := tr.Once(t.Context(), "a", nothing); err != nil {
			t.Error(err)
		}
	})
}

// A prefix and a schema that nobody could write without quotes.
func TestPrefixAndSchema(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		db := d.openNew(t).DB()
		cfg := gormtracker.Config{TablePrefix: "Select_"}
		if d.name != "sqlite" {
			cfg.Schema = strings.ReplaceAll(newName(), "_", "-") + " Order"
			quoted := `"` + cfg.Schema + `"`
			if d.name == "mariadb" {
				quoted = "`" + cfg.Schema + "`"
				t.Cleanup(func() { onDatabase(t, d, db, "DROP DATABASE "+quoted) })
			}
			must(t, db.Exec("CREATE SCHEMA "+quoted).Error)
		}
		special, plain := gormtracker.New(db, cfg), gormtracker.New(db, gormtracker.Config{})
		must(t, special.Migrate(t.Context()))
		must(t, plain.Migrate(t.Context()))
		must(t, special.MarkAsProcessed(t.Context(), "a"))
		wantKeys(t, special, map[string]bool{"a": true})
		wantKeys(t, plain, map[string]bool{"a": false})
		if n, err := special.Purge(t.Context()); n != 0 || err != nil {
			t.Errorf("Purge: %d, %v", n, err)
		}
		must(t, special.Once(t.Context(), "a", func(context.Context) error { t.Error("fn ran again"); return nil }))
	})
}

func onDatabase(t *testing.T, d database, db *gorm.DB, statement string) {
	t.Helper()
	if err := db.WithContext(context.WithoutCancel(t.Context())).Exec(statement).Error; err != nil {
		t.Errorf("%s: %v", d.name, err)
	}
}

// What Schema prints, applied by other means, is what the tracker works with.
func TestTheTableMadeByOtherMeans(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		db := d.openNew(t).DB()
		text, err := gormtracker.Schema(db.Name(), gormtracker.Config{})
		must(t, err)
		for q := range strings.SplitSeq(strings.TrimSuffix(text, ";\n"), ";\n") {
			must(t, db.Exec(q).Error)
		}
		tr := gormtracker.New(db, gormtracker.Config{})
		must(t, tr.Migrate(t.Context()))
		must(t, tr.MarkAsProcessed(t.Context(), "a"))
		wantKeys(t, tr, map[string]bool{"a": true})
	})
}

// clientFoundRows makes the driver count rows that are found, not changed.
func TestFoundRowsAreNoNewKeys(t *testing.T) {
	t.Parallel()
	for _, d := range databases() {
		if d.name != "mariadb" {
			continue
		}
		dsn, err := driver.ParseDSN(d.create(t))
		must(t, err)
		dsn.ClientFoundRows = true
		tr := tracker(t, d.openAt(t, dsn.FormatDSN()).DB(), gormtracker.Config{})
		must(t, tr.Once(t.Context(), "a", nothing))
		for range 3 {
			must(t, tr.Once(t.Context(), "a", func(context.Context) error { t.Error("fn ran again"); return nil }))
		}
	}
}

// A database that does not let a statement wait any longer: the key is in
// progress, not done.
func TestALockTimeoutIsInProgress(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		set := map[string]string{"postgres": "SET LOCAL lock_timeout = 50", "mariadb": "SET innodb_lock_wait_timeout = 1"}[d.name]
		if set == "" {
			return // SQLite has one lock, which may be held for any other reason
		}
		db := d.openNew(t).DB()
		tr := tracker(t, db, gormtracker.Config{})
		holder := db.Begin()
		must(t, holder.Error)
		must(t, tr.In(holder).Once(t.Context(), "a", nothing))
		err := db.Transaction(func(tx *gorm.DB) error {
			must(t, tx.Exec(set).Error)
			err := tr.In(tx).Once(t.Context(), "a", func(context.Context) error { t.Error("fn ran"); return nil })
			if !errors.Is(err, idempotency.ErrInProgress) {
				t.Errorf("error %v, want ErrInProgress", err)
			}
			return tr.In(tx).Once(t.Context(), "b", nothing) // the transaction goes on
		})
		must(t, err)
		must(t, holder.Rollback().Error)
		wantKeys(t, tr, map[string]bool{"a": false, "b": true})
	})
}

func TestWhatCannotBeUsedIsReported(t *testing.T) {
	t.Parallel()
	d := databases()[0]
	db := d.openNew(t).DB()
	good := tracker(t, db, gormtracker.Config{})
	tx := db.Begin()
	must(t, tx.Error)
	defer tx.Rollback()
	dry := db.Session(&gorm.Session{DryRun: true})
	for want, tr := range map[string]*gormtracker.Tracker{
		"is nil, or not opened":                    gormtracker.New(nil, gormtracker.Config{}),
		"DryRun mode":                              gormtracker.New(dry, gormtracker.Config{}),
		"is in a transaction; give New one":        gormtracker.New(tx, gormtracker.Config{}),
		"SQLite has no schemas":                    gormtracker.New(db, gormtracker.Config{Schema: "x"}),
		"is not in a transaction; use the one":     good.In(db),
		"Config.Tx returned a string":              gormtracker.New(db, gormtracker.Config{Tx: func(context.Context) (any, error) { return "tx", nil }}),
		"Config.Tx: the context has none of a bus": gormtracker.New(db, gormtracker.Config{Tx: func(context.Context) (any, error) { return nil, errors.New("the context has none of a bus") }}),
	} {
		_, has := tr.HasProcessed(t.Context(), "a")
		once := tr.Once(t.Context(), "a", func(context.Context) error { t.Error("fn ran"); return nil })
		for _, err := range []error{has, once, tr.MarkAsProcessed(t.Context(), "a")} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v does not say %q", err, want)
			}
		}
	}
}
