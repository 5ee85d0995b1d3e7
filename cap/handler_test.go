package cap_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
)

// Publish with a nil transaction in a handler: message and success are one.
func TestPublishInAHandlerCommitsWithItsSuccess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end   func() error // how the handler ends, the first time
		reach []string     // what arrives in all
	}{
		"success": {func() error { return nil }, []string{"nested 1"}},
		"error":   {func() error { return errors.New("no") }, []string{"nested 2"}},
		"panic":   {func() error { panic("no") }, []string{"nested 2"}},
		"reject":  {func() error { return subscribe.Reject(errors.New("never")) }, nil},
		"snooze":  {func() error { return subscribe.Snooze(time.Second) }, []string{"nested 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j, runs := newJournal(), 0
				r := running(t, cap.Options{}, subscribe.To("outer", func(ctx context.Context, _ string) error {
					runs++
					// The package function finds the handler's bus: there is no default one.
					if err := cap.Publish(ctx, nil, "nested", fmt.Sprint("nested ", runs)); err != nil {
						t.Errorf("Publish in a handler: %v", err)
					}
					pause(2 * time.Second)
					if got := j.all(); len(got) > 0 && runs == 1 {
						t.Errorf("%v left before the handler returned", got)
					}
					if runs == 1 {
						return c.end()
					}
					return nil
				}), subscribe.To("nested", j.handler))
				if err := r.Publish(t.Context(), cap.NoTx, "outer", "m"); err != nil {
					t.Fatal(err)
				}
				elapse(time.Hour)
				if got := j.all(); !slices.Equal(got, c.reach) {
					t.Errorf("nested messages %v, want %v", got, c.reach)
				}
			})
		})
	}
}

// A handler whose instance has lost its lease: whoever has the row does it all,
// and nothing of the first run stays.
func TestNothingOfALostRunStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, runs := newJournal(), newJournal()
		handler := func(ctx context.Context, _ string) error {
			n := len(runs.all())
			runs.add("run")
			if err := cap.Publish(ctx, nil, "nested", fmt.Sprint("of run ", n+1)); err != nil {
				t.Errorf("Publish in a handler: %v", err)
			}
			if n == 0 {
				pause(time.Minute) // meanwhile the other takes the row
			}
			return nil
		}
		subs := []subscribe.Subscription{subscribe.To("outer", handler), subscribe.To("nested", j.handler)}
		frozen := &frozenStore{Store: memstore.New(memstore.Config{})}
		r := running(t, cap.Options{Storage: frozen}, subs...)
		if err := r.Publish(t.Context(), cap.NoTx, "outer", "m"); err != nil {
			t.Fatal(err)
		}
		runs.wait(t, 1)
		frozen.freeze() // its heartbeats stop
		r.again(t, cap.Options{Storage: frozen.Store}, subs...).start(t)
		elapse(17 * time.Second)
		runs.wait(t, 2)
		frozen.thaw()
		elapse(5 * time.Minute)
		if got := j.all(); !slices.Equal(got, []string{"of run 2"}) {
			t.Errorf("nested messages %v, want only that of the second run", got)
		}
		if n := len(runs.all()); n != 2 {
			t.Errorf("%d runs, want 2", n)
		}
	})
}

func TestTheInboxTransactionBeginsWhenItIsAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		counting := &countingStore{Store: memstore.New(memstore.Config{})}
		var kept context.Context // to be used too late
		r := running(t, cap.Options{Storage: counting},
			subscribe.To("plain", func(context.Context, string) error { return nil }),
			subscribe.To("asks", func(ctx context.Context, _ string) error {
				tx, err := cap.TxFromContext(ctx)
				again, err2 := cap.TxFromContext(ctx)
				if err != nil || err2 != nil || tx != again {
					t.Errorf("TxFromContext: %v, %v, the same one: %t", err, err2, tx == again)
				}
				if _, ok := tx.(*memstore.Tx); !ok {
					t.Errorf("TxFromContext: %T, want the storage's type", tx)
				}
				kept = ctx
				return cap.Publish(ctx, tx, "plain", "explicit")
			}))
		if err := r.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error { return r.Publish(ctx, tx, "plain", 1) }); err == nil {
			elapse(time.Minute)
		}
		if n := counting.begun.Load(); n != 1 {
			t.Errorf("%d transactions begun for a handler that does not ask, want that of InTx alone", n)
		}
		if err := r.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error { return r.Publish(ctx, tx, "asks", "m") }); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		if n := counting.begun.Load(); n != 3 {
			t.Errorf("%d transactions begun, want 3", n)
		}
		if _, err := cap.TxFromContext(kept); !errors.Is(err, storage.ErrTxDone) {
			t.Errorf("TxFromContext after the handler: %v, want ErrTxDone", err)
		}
		if err := cap.Publish(context.WithoutCancel(kept), nil, "plain", "late"); !errors.Is(err, storage.ErrTxDone) {
			t.Errorf("Publish after the handler: %v, want ErrTxDone", err)
		}
	})
}

func TestOutsideAHandlerThereIsNoTransactionAndNoInfo(t *testing.T) {
	t.Parallel()
	if _, err := cap.TxFromContext(t.Context()); !errors.Is(err, cap.ErrNoTx) {
		t.Errorf("TxFromContext: %v, want ErrNoTx", err)
	}
	if _, ok := cap.InfoFromContext(t.Context()); ok {
		t.Error("InfoFromContext outside a handler")
	}
	tx, err := cap.TxFromContext(cap.ContextWithTx(t.Context(), 5))
	if err != nil || tx != 5 {
		t.Errorf("TxFromContext: %v, %v, want what ContextWithTx was given", tx, err)
	}
}

func TestAHandlerOfOneBusCannotPublishIntoItsTransactionWithAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		other := newRig(t, cap.Options{})
		var got error
		r := running(t, cap.Options{FailedRetryCount: 1}, subscribe.To("t", func(ctx context.Context, _ string) error {
			got = other.Publish(ctx, nil, "t", 1)
			return nil
		}))
		if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
			t.Fatal(err)
		}
		elapse(time.Second)
		if !errors.Is(got, cap.ErrNoTx) {
			t.Errorf("Publish with another bus: %v, want ErrNoTx", got)
		}
	})
}

func TestTheTransactionOfTheStartIsNotThatOfHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := newRig(t, cap.Options{}, subscribe.To("outer", func(ctx context.Context, _ string) error {
			return cap.Publish(ctx, nil, "nested", "n")
		}), subscribe.To("nested", j.handler))
		err := r.InTx(t.Context(), func(ctx context.Context, _ cap.Tx) error { return r.Start(ctx) })
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Publish(t.Context(), cap.NoTx, "outer", "m"); err != nil {
			t.Fatal(err)
		}
		elapse(time.Second)
		if got := j.all(); len(got) != 1 {
			t.Errorf("nested messages %v, want one", got)
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestInfoTellsTheHandlerWhatItHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var infos []cap.Info
		r := running(t, cap.Options{GroupNamePrefix: "gp", TopicNamePrefix: "tp", ImmediateRetries: 1, FailedRetryInterval: time.Minute},
			subscribe.To("t.*", func(ctx context.Context, _ string) error {
				info, ok := cap.InfoFromContext(ctx)
				if !ok {
					t.Error("no Info in a handler")
				}
				infos = append(infos, info)
				switch len(infos) {
				case 3:
					return subscribe.Snooze(time.Second) // no attempt
				case 5:
					return nil
				}
				return errors.New("no")
			}, subscribe.Group("g"), subscribe.Name("n")))
		id := cap.NewID()
		if err := r.Publish(t.Context(), cap.NoTx, "t.one", "m", cap.WithID(id), cap.WithHeader("tenant", "blue")); err != nil {
			t.Fatal(err)
		}
		elapse(time.Hour)
		var attempts []int
		for _, info := range infos {
			attempts = append(attempts, info.Attempt)
			m := info.Message
			if info.Group != "gp.g" || info.Subscriber != "n" || m.ID != id || m.Topic != "tp.t.one" || m.Headers["tenant"] != "blue" || string(m.Body) != `"m"` {
				t.Errorf("Info %+v, message %+v", info, m)
			}
		}
		if !slices.Equal(attempts, []int{1, 2, 3, 3, 4}) {
			t.Errorf("attempts %v, want 1, 2, 3, 3 after the snooze, 4", attempts)
		}
	})
}

func TestInTxRollsBackOnErrorAndPanic(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{})
	failed := errors.New("no")
	err := r.InTx(t.Context(), func(ctx context.Context, _ cap.Tx) error {
		if err := r.Publish(ctx, nil, "t", 1); err != nil {
			t.Error(err)
		}
		return failed
	})
	if !errors.Is(err, failed) || err.Error() != "no" {
		t.Errorf("InTx: %v, want the function's own error", err)
	}
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("InTx panicked with %v, want the function's own panic", p)
			}
		}()
		_ = r.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error {
			if err := r.Publish(ctx, tx, "t", 1); err != nil {
				t.Error(err)
			}
			panic("boom")
		})
	}()
	if recs := r.store.Records(storage.Outbox); len(recs) != 0 {
		t.Errorf("%d rows, want none", len(recs))
	}
	err = r.InTx(t.Context(), func(ctx context.Context, _ cap.Tx) error {
		carried, err := cap.TxFromContext(ctx)
		if err != nil {
			return err
		}
		return r.Publish(ctx, carried, "t", 1)
	})
	if err != nil {
		t.Errorf("InTx: %v", err)
	}
	r.row(t, storage.Outbox)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err = r.InTx(ended, func(context.Context, cap.Tx) error { t.Error("called"); return nil })
	if !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "cap: begin: ") {
		t.Errorf("InTx with a context that has ended: %v", err)
	}
	err = r.InTx(t.Context(), func(_ context.Context, tx cap.Tx) error { return tx.(*memstore.Tx).Rollback() })
	if !errors.Is(err, storage.ErrTxDone) {
		t.Errorf("InTx whose function ended the transaction: %v, want ErrTxDone: it is not committed", err)
	}
}

func TestInTxInAHandlerIsATransactionOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := newRig(t, cap.Options{FailedRetryCount: 1}, subscribe.To("nested", j.handler))
		outer := r.again(t, cap.Options{FailedRetryCount: 1}, subscribe.To("nested", j.handler), subscribe.To("outer", func(ctx context.Context, _ string) error {
			if err := cap.Publish(ctx, nil, "nested", "in the inbox transaction"); err != nil {
				return err
			}
			err := r.InTx(ctx, func(ctx context.Context, _ cap.Tx) error { return cap.Publish(ctx, nil, "nested", "in its own") })
			return errors.Join(errors.New("no"), err)
		})).start(t)
		if err := outer.Publish(t.Context(), cap.NoTx, "outer", "m"); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		if got := j.all(); !slices.Equal(got, []string{"in its own"}) {
			t.Errorf("nested messages %v, want that of InTx alone", got)
		}
	})
}
