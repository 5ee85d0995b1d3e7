package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
)

func impatient(c *sqlite.Config) { c.BusyTimeout = 50 * time.Millisecond }

// TestWaitingForTheWritingConnectionIsBounded: who holds a transaction and
// writes past it gets an error that says so, in each way to write.
func TestWaitingForTheWritingConnectionIsBounded(t *testing.T) {
	t.Parallel()
	s := newStore(t, impatient)
	db := s.DB()
	must(t, db.Exec("CREATE TABLE x (a)").Error)
	tx := db.Begin()
	must(t, tx.Error)
	must(t, tx.Exec("INSERT INTO x VALUES (1)").Error)
	var n int
	for name, f := range map[string]func() error{
		"exec":      func() error { return db.Exec("INSERT INTO x VALUES (2)").Error },
		"begin":     func() error { return db.Begin().Error },
		"query":     func() error { return db.Raw("INSERT INTO x VALUES (3) RETURNING a").Scan(&n).Error },
		"query row": func() error { return db.Raw("INSERT INTO x VALUES (4) RETURNING a").Row().Scan(&n) },
		"prepare": func() error {
			return db.Session(&gorm.Session{PrepareStmt: true}).Exec("INSERT INTO x VALUES (5)").Error
		},
		"store": func() error { _, err := s.Begin(t.Context()); return err },
		"member": func() error {
			_, err := s.Join(t.Context(), storage.Instance{Box: storage.Outbox, Version: version, Lease: time.Minute})
			return err
		},
	} {
		if err := f(); !errors.Is(err, sqlite.ErrBusy) || !strings.Contains(err.Error(), "transaction") {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, db.Raw("SELECT count(*) FROM x").Row().Scan(&n))
	if n != 0 {
		t.Errorf("a read beside the transaction sees %d rows of it", n)
	}
	must(t, tx.Commit().Error)
	must(t, db.Exec("INSERT INTO x VALUES (6)").Error)
	if n := count(t, s, "SELECT count(*) FROM x"); n != 2 {
		t.Errorf("%d rows", n)
	}
}

// TestTheCallersContextEndsTheWaiting, and is what is reported then.
func TestTheCallersContextEndsTheWaiting(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	tx := s.DB().Begin()
	must(t, tx.Error)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.DB().WithContext(ctx).Exec("CREATE TABLE y (a)").Error; !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	must(t, tx.Rollback().Error)
}

// TestAConnectionIsGivenBack however a transaction, or rows, end.
func TestAConnectionIsGivenBack(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	pool := s.DB().ConnPool
	must(t, s.DB().Exec("CREATE TABLE x (a)").Error)
	for i := range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := pool.(gorm.TxBeginner).BeginTx(ctx, nil)
		must(t, err)
		_, err = tx.ExecContext(ctx, "INSERT INTO x VALUES (1)")
		must(t, err)
		switch i % 4 {
		case 0:
			must(t, tx.Commit())
		case 1:
			must(t, tx.Rollback())
		case 2:
			cancel()
		case 3:
			if err := tx.QueryRow("INSERT INTO nowhere VALUES (1)").Err(); err == nil {
				t.Fatal("no error")
			}
			must(t, tx.Rollback())
		}
		var a int
		must(t, pool.QueryRowContext(t.Context(), "INSERT INTO x VALUES (2) RETURNING a").Scan(&a))
		must(t, s.DB().Raw("INSERT INTO x VALUES (3), (4) RETURNING a").Scan(&[]int{}).Error)
		cancel()
	}
	db, err := s.DB().DB()
	must(t, err)
	if open := db.Stats().OpenConnections; open > 1 {
		t.Errorf("%d writing connections", open)
	}
}

// TestReadsDoNotWaitForAWriter, nor a transaction that only reads; neither can
// write.
func TestReadsDoNotWaitForAWriter(t *testing.T) {
	t.Parallel()
	s := newStore(t, impatient)
	must(t, s.DB().Exec("CREATE TABLE x (a)").Error)
	writing := s.DB().Begin()
	must(t, writing.Error)
	for _, q := range []string{"SELECT 1", " \n\tselect 1", "SELECT(1)", "Select'1'"} {
		var n int
		must(t, s.DB().Raw(q).Row().Scan(&n))
	}
	reading := s.DB().Begin(&sql.TxOptions{ReadOnly: true})
	must(t, reading.Error)
	if err := reading.Exec("INSERT INTO x VALUES (1)").Error; err == nil {
		t.Error("a transaction for reading wrote")
	}
	must(t, reading.Rollback().Error)
	must(t, writing.Rollback().Error)
}

// TestManyWritersOfOneStore queue for the one connection; nobody is refused.
func TestManyWritersOfOneStore(t *testing.T) {
	t.Parallel()
	s := newStore(t, normal)
	m := join(t, s, storage.Outbox)
	const writers, each = 16, 25
	var wg sync.WaitGroup
	errs := make(chan error, writers*each)
	for range writers {
		wg.Go(func() {
			for range each {
				errs <- s.DB().Transaction(func(tx *gorm.DB) error {
					w, err := s.Bind(tx)
					if err != nil {
						return err
					}
					return w.Append(t.Context(), outgoing(m.Number()))
				})
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		must(t, err)
	}
	if got := due(t, m, outLane(1000)); len(got) != writers*each {
		t.Errorf("%d rows", len(got))
	}
}

// TestAnyPathCanBeOpened, and it is that file which is made.
func TestAnyPathCanBeOpened(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"plain.db", "with space.db", "50%.db", "a?b.db", "a#b.db", "ü.db", "%3f.db", "a&b=c.db", "a'b.db", "-x"} {
		path := filepath.Join(t.TempDir(), name)
		s := open(t, path)
		must(t, s.Migrate(t.Context()))
		must(t, s.Check(t.Context()))
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
		var mode, sync, keys string
		must(t, s.DB().Raw("PRAGMA journal_mode").Row().Scan(&mode))
		must(t, s.DB().Raw("PRAGMA synchronous").Row().Scan(&sync))
		must(t, s.DB().Raw("PRAGMA foreign_keys").Row().Scan(&keys))
		if mode != "wal" || sync != "2" || keys != "1" {
			t.Errorf("%s: journal mode %s, synchronous %s, foreign keys %s", name, mode, sync, keys)
		}
	}
}

func TestARelativePathCanBeOpened(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, open(t, "here.db").Migrate(t.Context()))
	if _, err := os.Stat("here.db"); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("text, and more of it, so that it is no database"), 0o600))
	for path, want := range map[string]string{
		"":                                 "empty",
		"file:x.db":                        "URI",
		filepath.Join(dir, "no", "x.db"):   "does not exist",
		filepath.Join(dir, "file", "x.db"): "not a",
		dir:                                "folder",
		filepath.Join(dir, "file"):         "not a database",
		filepath.Join(dir, "a\x00b"):       "NUL",
	} {
		s, err := sqlite.Open(path, sqlite.Config{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", path, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]sqlite.Config{
		"TablePrefix": {TablePrefix: `a"b`},
		"BusyTimeout": {BusyTimeout: -1},
		"Synchronous": {Synchronous: "OFF"},
		"Readers":     {Readers: -1},
		"Binders":     {Binders: []storage.TxBinder{nil}},
		"DryRun":      {GORM: &gorm.Config{DryRun: true}},
	} {
		if _, err := sqlite.Open(filepath.Join(t.TempDir(), "x.db"), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestADatabaseInMemory(t *testing.T) {
	t.Parallel()
	a, b := open(t, ":memory:"), open(t, ":memory:")
	must(t, a.Migrate(t.Context()))
	if err := b.Check(t.Context()); err == nil {
		t.Error("two databases in memory are one")
	}
	m := join(t, a, storage.Outbox)
	ctx, cancel := context.WithCancel(t.Context())
	tx := a.DB().WithContext(ctx).Begin()
	must(t, tx.Error)
	cancel()
	for tx.Exec("SELECT 1").Error == nil { //nolint:revive // until the rollback has come about
	}
	publish(t, a, outgoing(m.Number()))
	if got := due(t, m, outLane(9)); len(got) != 1 {
		t.Error(got)
	}
}

// TestGormMigratorWorks: it reads the schema through the same pool that it
// writes through.
func TestGormMigratorWorks(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	type Thing struct {
		ID   int64
		Name string
		At   time.Time
	}
	must(t, s.DB().AutoMigrate(&Thing{}))
	must(t, s.DB().Migrator().AlterColumn(&Thing{}, "Name"))
	now := time.Now()
	must(t, s.DB().Create(&Thing{Name: "a", At: now}).Error)
	var got Thing
	must(t, s.DB().First(&got, "name = ?", "a").Error)
	if !got.At.Equal(now) {
		t.Errorf("stored %v, read %v", now, got.At)
	}
}

// TestCloseLeavesWhatNewWasGiven, and closes what Open opened.
func TestCloseLeavesWhatNewWasGiven(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	second := gormstore.New(s.DB(), gormstore.Config{})
	join(t, second, storage.Outbox)
	must(t, second.Close())
	must(t, second.Close())
	must(t, s.Check(t.Context()))
	must(t, s.Close())
	if err := s.Check(t.Context()); err == nil {
		t.Error("closed, and still usable")
	}
}
