package tracking

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/idempotency"
	"github.com/capbus/gocap/idempotency/gormtracker"
	"github.com/capbus/gocap/idempotency/trackertest"
)

var errNo = errors.New("no")

func TestConformance(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		tr := tracker(t, d.openNew(t).DB(), gormtracker.Config{})
		trackertest.Run(t, func(testing.TB) idempotency.Tracker { return tr }, trackertest.WithPatience(2*time.Minute))
	})
}

// In gorm's prepared-statement mode the tracker's statements go past its cache.
func TestConformancePrepared(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		db := d.openNew(t).DB().Session(&gorm.Session{PrepareStmt: true})
		tr := tracker(t, db, gormtracker.Config{})
		trackertest.Run(t, func(testing.TB) idempotency.Tracker { return tr }, trackertest.WithPatience(2*time.Minute))
	})
}

// What fn writes in the transaction of Once, and the key, are one.
func TestTheWritesOfFnShareTheFateOfTheKey(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		db := d.openNew(t).DB()
		tr := tracker(t, db, gormtracker.Config{})
		write := func(answer error) error {
			return tr.Once(t.Context(), "a", func(ctx context.Context) error {
				tx, ok := gormtracker.TxFromContext(ctx)
				if !ok {
					t.Fatal("there is no transaction in the context of fn")
				}
				return errors.Join(write(tx, "a"), answer)
			})
		}
		if err := write(errNo); !errors.Is(err, errNo) {
			t.Fatal(err)
		}
		if n := effects(t, db, "a"); n != 0 {
			t.Fatalf("%d effects of an fn that failed", n)
		}
		must(t, write(nil))
		must(t, write(nil))
		if n := effects(t, db, "a"); n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
	})
}

// In: the caller's transaction decides.
func TestInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		db := d.openNew(t).DB()
		tr := tracker(t, db, gormtracker.Config{})
		inTx := func(outcome error) error {
			return db.Transaction(func(tx *gorm.DB) error {
				in := tr.In(tx)
				if err := write(tx, "outer"); err != nil {
					return err
				}
				// One that fails is undone, and the transaction goes on.
				err := in.Once(t.Context(), "bad", func(context.Context) error { return errors.Join(write(tx, "bad"), errNo) })
				if !errors.Is(err, errNo) {
					return errors.Join(errors.New("Once of a failing fn"), err)
				}
				for range 2 {
					if err := in.Once(t.Context(), "a", func(ctx context.Context) error {
						return in.Once(ctx, "b", func(context.Context) error { return write(tx, "a") })
					}); err != nil {
						return err
					}
				}
				if done, err := in.HasProcessed(t.Context(), "a"); !done || err != nil {
					return errors.Join(errors.New("not seen in its own transaction"), err)
				}
				return errors.Join(in.MarkAsProcessed(t.Context(), "c"), outcome)
			})
		}
		if err := inTx(errNo); !errors.Is(err, errNo) || strings.Contains(err.Error(), "\n") {
			t.Fatal(err)
		}
		wantKeys(t, tr, map[string]bool{"a": false, "b": false, "c": false, "bad": false})
		must(t, inTx(nil))
		wantKeys(t, tr, map[string]bool{"a": true, "b": true, "c": true, "bad": false})
		for id, want := range map[string]int{"outer": 1, "a": 1, "bad": 0} {
			if n := effects(t, db, id); n != want {
				t.Errorf("%d effects %s, want %d", n, id, want)
			}
		}
	})
}

// A Once of another database in between does not hide the transaction of the
// outer one, which it would wait for.
func TestOnceJoinsTheOuterOneThroughAnother(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		db := d.openNew(t).DB()
		tr, other := tracker(t, db, gormtracker.Config{}), tracker(t, d.openNew(t).DB(), gormtracker.Config{})
		once := func(answer error) error {
			return tr.Once(t.Context(), "a", func(ctx context.Context) error {
				return other.Once(ctx, "x", func(ctx context.Context) error {
					return errors.Join(tr.Once(ctx, "b", func(context.Context) error { return nil }), answer)
				})
			})
		}
		if err := once(errNo); !errors.Is(err, errNo) || strings.Contains(err.Error(), "\n") {
			t.Fatal(err)
		}
		wantKeys(t, tr, map[string]bool{"a": false, "b": false})
		must(t, once(nil))
		wantKeys(t, tr, map[string]bool{"a": true, "b": true})
	})
}

func wantKeys(t *testing.T, tr *gormtracker.Tracker, keys map[string]bool) {
	t.Helper()
	for key, want := range keys {
		if done, err := tr.HasProcessed(t.Context(), key); done != want || err != nil {
			t.Errorf("key %s: done %v, %v; want %v", key, done, err, want)
		}
	}
}

// A panic in fn leaves the caller's transaction as before Once.
func TestAPanicInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		db := d.openNew(t).DB()
		tr := tracker(t, db, gormtracker.Config{})
		must(t, db.Transaction(func(tx *gorm.DB) error {
			func() {
				defer func() { _ = recover() }()
				_ = tr.In(tx).Once(t.Context(), "a", func(context.Context) error {
					must(t, write(tx, "a"))
					panic("fn")
				})
			}()
			return write(tx, "after")
		}))
		if a, after := effects(t, db, "a"), effects(t, db, "after"); a != 0 || after != 1 {
			t.Errorf("%d effects of the panicking fn, %d after it; want 0 and 1", a, after)
		}
		wantKeys(t, tr, map[string]bool{"a": false})
	})
}

// When the database has ended the transaction in fn, as after a deadlock, and fn
// makes nothing of it, Once has not succeeded.
func TestATransactionThatHasEndedInFnIsNoSuccess(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		db := d.openNew(t).DB()
		tr := tracker(t, db, gormtracker.Config{})
		fn := func(ctx context.Context) error {
			tx, _ := gormtracker.TxFromContext(ctx)
			_ = tx.Exec("ROLLBACK").Error
			return nil
		}
		if err := tr.Once(t.Context(), "a", fn); err == nil {
			t.Error("Once returns nil")
		}
		_ = db.Transaction(func(tx *gorm.DB) error {
			if err := tr.In(tx).Once(t.Context(), "a", fn); err == nil || !strings.Contains(err.Error(), "roll it back") {
				t.Errorf("Once in the caller's transaction returns %v", err)
			}
			return errNo
		})
		wantKeys(t, tr, map[string]bool{"a": false})
		must(t, tr.Once(t.Context(), "a", nothing))
	})
}

// While a transaction has a key, another that wants it waits or is told, and has
// the key if the first rolls back.
func TestATransactionThatRollsBackGivesTheKeyBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		db := d.openNew(t).DB()
		tr := tracker(t, db, gormtracker.Config{})
		tx := db.Begin()
		must(t, tx.Error)
		must(t, tr.In(tx).Once(t.Context(), "a", func(context.Context) error { return nil }))
		const waiters = 3
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				if err := untilDone(t.Context(), tr, "a", func(ctx context.Context) error {
					tx, _ := gormtracker.TxFromContext(ctx)
					return write(tx, "a")
				}); err != nil {
					t.Error(err)
				}
			})
		}
		<-time.After(100 * time.Millisecond) // so that they wait, mostly
		must(t, tx.Rollback().Error)
		wg.Wait()
		if n := effects(t, db, "a"); n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
	})
}

func TestPurgeDeletesWhatIsOld(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		db := d.openNew(t).DB()
		tr := tracker(t, db, gormtracker.Config{})
		short := gormtracker.New(db, gormtracker.Config{Retention: time.Microsecond})
		for range 2 {
			must(t, tr.MarkAsProcessed(t.Context(), "a"))
			must(t, tr.MarkAsProcessed(t.Context(), "b"))
			if n, err := tr.Purge(t.Context()); n != 0 || err != nil {
				t.Fatalf("Purge deleted %d keys of this moment, %v", n, err)
			}
			wantKeys(t, tr, map[string]bool{"a": true, "b": true})
			<-time.After(5 * time.Millisecond) // the clock goes on
			if n, err := short.Purge(t.Context()); n != 2 || err != nil {
				t.Fatalf("Purge deleted %d keys, %v; want 2", n, err)
			}
			wantKeys(t, tr, map[string]bool{"a": false, "b": false})
		}
	})
}

// A thousand a batch, and all of them.
func TestPurgeDeletesMoreThanABatch(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		db := d.openNew(t).DB()
		tr := tracker(t, db, gormtracker.Config{Retention: time.Microsecond})
		const keys = 2500
		must(t, db.Transaction(func(tx *gorm.DB) error {
			for i := range keys {
				if err := tr.In(tx).MarkAsProcessed(t.Context(), fmt.Sprint(i)); err != nil {
					return err
				}
			}
			return nil
		}))
		<-time.After(5 * time.Millisecond)
		if n, err := tr.Purge(t.Context()); n != keys || err != nil {
			t.Errorf("Purge deleted %d keys, %v; want %d", n, err, keys)
		}
	})
}
