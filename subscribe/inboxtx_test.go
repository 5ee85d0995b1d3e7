package subscribe_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
)

// write puts a row into the outbox in the inbox transaction: it stands for any
// effect of a handler.
func write(ctx context.Context, t *testing.T) {
	t.Helper()
	tx, err := storage.TxFromContext(ctx)
	if err != nil {
		t.Errorf("TxFromContext: %v", err)
		return
	}
	if err := tx.Append(ctx, &storage.Record{ID: ids.New(), Version: "v1", Topic: "effect"}); err != nil {
		t.Errorf("Append: %v", err)
	}
}

func effects(r *rig) int { return len(r.store.Records(storage.Outbox)) }

func TestEffectAndSuccessAreOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := running(t, nil, subscribe.To("t", func(ctx context.Context, _ string) error {
			runs++
			write(ctx, t)
			switch runs {
			case 1:
				return errors.New("no")
			case 2:
				panic("no")
			case 3:
				return subscribe.Snooze(time.Second)
			case 4:
				return subscribe.RetryAfter(time.Second, errors.New("no"))
			}
			return nil
		}))
		r.send("t", "1", `"m"`)
		elapse(time.Minute)
		if rec := r.record(); runs != 5 || effects(r) != 1 || rec.Status != storage.Succeeded || rec.Retries != 3 {
			t.Errorf("%d runs, %d effects, row %v with %d failed attempts", runs, effects(r), rec.Status, rec.Retries)
		}
	})
}

// The transaction ends with the context of the run.
func TestAnEffectAfterTheTimeoutIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := running(t, nil, subscribe.To("t", func(ctx context.Context, _ string) error {
			if runs++; runs > 1 {
				return nil
			}
			write(ctx, t)
			pause(2 * time.Minute) // and pays no heed
			return nil
		}, subscribe.Timeout(time.Minute)))
		r.send("t", "1", `"m"`)
		elapse(10 * time.Minute)
		if rec := r.record(); runs != 2 || effects(r) != 0 || rec.Status != storage.Succeeded || rec.Retries != 1 || !strings.Contains(rec.LastError, "commit of the handler's transaction") {
			t.Errorf("%d runs, %d effects, row %v with %d failed attempts, %q", runs, effects(r), rec.Status, rec.Retries, rec.LastError)
		}
	})
}

// uncommitting is a storage whose transactions fail to commit at first; the
// second kind has committed all the same.
type uncommitting struct {
	*memstore.Store

	commits int
}

type uncommittingTx struct {
	storage.Tx

	u *uncommitting
}

var errLost = errors.New("connection lost")

func (u *uncommitting) Begin(ctx context.Context) (storage.Tx, error) {
	tx, err := u.Store.Begin(ctx)
	return uncommittingTx{tx, u}, err
}

func (t uncommittingTx) Commit() error {
	switch t.u.commits++; t.u.commits {
	case 1:
		return errors.Join(errLost, t.Rollback())
	case 2:
		return errors.Join(errLost, t.Tx.Commit())
	}
	return t.Tx.Commit()
}

func TestACommitWhoseOutcomeIsUnknownHasItsEffectOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		store := &uncommitting{Store: memstore.New(memstore.Config{})}
		r := newRig(t, shared{store: store.Store}, func(c *subscribe.ConsumerConfig) { c.Storage = store }, subscribe.To("t", func(ctx context.Context, _ string) error {
			runs++
			write(ctx, t)
			return nil
		})).start()
		r.send("t", "1", `"m"`)
		elapse(10 * time.Minute)
		if rec := r.record(); runs != 2 || effects(r) != 1 || rec.Status != storage.Succeeded || rec.Retries != 1 {
			t.Errorf("%d runs, %d effects, row %v with %d failed attempts, want 2 runs and 1 effect", runs, effects(r), rec.Status, rec.Retries)
		}
		if n := r.consumer.Hand().Len(); n != 0 {
			t.Errorf("%d rows still in hand", n)
		}
	})
}

// TestATransactionThatCannotBeginCostsNoAttempt: it is the database's business.
func TestATransactionThatCannotBeginCostsNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got error
		store := &unbegun{Store: memstore.New(memstore.Config{})}
		r := newRig(t, shared{store: store.Store}, func(c *subscribe.ConsumerConfig) { c.Storage, c.Policy.Count = store, 1 }, subscribe.To("t", func(ctx context.Context, _ string) error {
			_, got = storage.TxFromContext(ctx)
			return got
		})).start()
		r.send("t", "1", `"m"`)
		elapse(time.Minute)
		if rec := r.record(); !errors.Is(got, errLost) || rec.Retries != 0 || rec.Final {
			t.Errorf("TxFromContext: %v; row with %d failed attempts, %q", got, rec.Retries, rec.LastError)
		}
		store.back.Store(true)
		elapse(10 * time.Second)
		if rec := r.record(); rec.Status != storage.Succeeded || rec.Retries != 0 {
			t.Errorf("row %v with %d failed attempts, want success", rec.Status, rec.Retries)
		}
	})
}

type unbegun struct {
	*memstore.Store

	back atomic.Bool
}

func (u *unbegun) Begin(ctx context.Context) (storage.Tx, error) {
	if u.back.Load() {
		return u.Store.Begin(ctx)
	}
	return nil, errLost
}

// TestAskingForTheTransactionTooLateIsAFailedAttempt: it would not begin the
// next time either.
func TestAskingForTheTransactionTooLateIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := running(t, nil, subscribe.To("t", func(ctx context.Context, _ string) error {
			runs++
			pause(2 * time.Minute) // and pays no heed
			_, err := storage.TxFromContext(ctx)
			return err
		}, subscribe.Timeout(time.Minute), subscribe.FailedRetryCount(3)))
		r.send("t", "1", `"m"`)
		elapse(time.Hour)
		if rec := r.record(); runs != 3 || !rec.Final || rec.Retries != 3 || !strings.Contains(rec.LastError, "took longer than 1m0s") {
			t.Errorf("%d runs, %d failed attempts, %q", runs, rec.Retries, rec.LastError)
		}
	})
}
