package cap_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
)

// inParallel runs f for every name at once.
func inParallel(names []string, f func(name string)) {
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() { f(name) })
	}
	all.Wait()
}

// quoted is how the JSON codec writes the bodies of names.
func quoted(names []string) []string {
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%q", name))
	}
	slices.Sort(all)
	return all
}

// Case C001: what does not commit leaves no row, reaches no broker and no
// handler; what commits is handled, once.
func TestOnlyCommittedMessagesLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := running(t, cap.Options{}, subscribe.To("t", j.handler))
		failed := errors.New("no")
		inTx := func(ctx context.Context, name string, then func() error) {
			_ = r.InTx(ctx, func(ctx context.Context, tx cap.Tx) error {
				if err := r.Publish(ctx, tx, "t", name); err != nil {
					t.Error(err)
				}
				pause(2 * time.Second) // a bus that looked too early would have seen it
				return then()
			})
		}
		ends := map[string]func(name string){
			"committed": func(name string) { inTx(t.Context(), name, func() error { return nil }) },
			"error":     func(name string) { inTx(t.Context(), name, func() error { return failed }) },
			"panic": func(name string) {
				defer func() { _ = recover() }()
				inTx(t.Context(), name, func() error { panic(name) })
			},
			"cancelled": func(name string) {
				ctx, cancel := context.WithCancel(t.Context())
				inTx(ctx, name, func() error { cancel(); return nil })
			},
			"rolled back": func(name string) {
				tx := r.begin(t.Context(), t)
				if err := r.Publish(t.Context(), tx, "t", name); err != nil {
					t.Error(err)
				}
				pause(2 * time.Second)
				if err := tx.Rollback(); err != nil {
					t.Error(err)
				}
			},
		}
		var all sync.WaitGroup
		for end, f := range ends {
			all.Go(func() { inParallel(names(end, 100), f) })
		}
		all.Wait()
		elapse(time.Minute)
		want := names("committed", 100)
		if got := j.sorted(); !slices.Equal(got, want) {
			t.Errorf("handled %d messages, want the 100 committed ones: %v", len(got), got)
		}
		if got := r.sent(); !slices.Equal(got, quoted(want)) {
			t.Errorf("%d messages reached the broker, want the 100 committed ones", len(got))
		}
		if recs := r.store.Records(storage.Outbox); len(recs) != 100 {
			t.Errorf("%d rows, want 100", len(recs))
		}
	})
}

// Case C007: one publisher, many transactions at once.
func TestConcurrentTransactionsDoNotMix(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := running(t, cap.Options{}, subscribe.To("#", j.handler))
		var want []string
		all := names("m", 200)
		for i := 0; i < len(all); i += 2 {
			for k := range 5 {
				want = append(want, fmt.Sprint(all[i], "/", k))
			}
		}
		inParallel(all, func(name string) {
			n := 0
			_, _ = fmt.Sscanf(name, "m-%d", &n)
			_ = r.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error {
				for k := range 5 {
					pause(time.Duration((n*7+k*13)%11) * time.Millisecond)
					if err := r.Publish(ctx, tx, "t."+name, fmt.Sprint(name, "/", k)); err != nil {
						t.Error(err)
					}
				}
				if n%2 == 1 {
					return errors.New("no")
				}
				return nil
			})
		})
		elapse(time.Minute)
		if got := j.sorted(); !slices.Equal(got, want) {
			t.Errorf("handled %d messages, want just the %d committed ones", len(got), len(want))
		}
	})
}

// Case C005: a transaction that has ended is not remembered.
func TestAfterATransactionNothingIsSwallowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := running(t, cap.Options{}, subscribe.To("#", j.handler))
		tx := r.begin(t.Context(), t)
		if err := r.Publish(t.Context(), tx, "t", "first"); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := r.Publish(t.Context(), cap.NoTx, "t2", "second"); err != nil {
			t.Fatal(err)
		}
		if err := r.Publish(t.Context(), tx, "t3", "third"); !errors.Is(err, storage.ErrTxDone) {
			t.Errorf("Publish in a committed transaction: %v, want ErrTxDone", err)
		}
		if err := r.Publish(cap.ContextWithTx(t.Context(), tx), nil, "t3", "fourth"); !errors.Is(err, storage.ErrTxDone) {
			t.Errorf("Publish in a committed transaction of the context: %v, want ErrTxDone", err)
		}
		elapse(time.Second)
		if got := j.sorted(); !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("handled %v, want first and second", got)
		}
		if recs := r.store.Records(storage.Outbox); len(recs) != 2 {
			t.Errorf("%d rows, want 2", len(recs))
		}
	})
}

// Case C006: the transaction of the context goes wherever the context goes.
func TestTheTransactionOfTheContextIsJoined(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{})
	tx := r.begin(t.Context(), t)
	ctx := cap.ContextWithTx(t.Context(), tx)
	timeout, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ways := map[string]func() error{
		"same goroutine": func() error { return r.Publish(ctx, nil, "t", 1) },
		"another goroutine": func() error {
			done := make(chan error)
			go func() { done <- r.Publish(ctx, nil, "t", 1) }()
			return <-done
		},
		"WithoutCancel": func() error { return r.Publish(context.WithoutCancel(ctx), nil, "t", 1) },
		"WithTimeout":   func() error { return r.Publish(timeout, (*int)(nil), "t", 1) },
	}
	for name, way := range ways {
		if err := way(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.Publish(context.Background(), nil, "t", 1); !errors.Is(err, cap.ErrNoTx) { //nolint:usetesting // a context without the transaction
		t.Errorf("context without the transaction: %v, want ErrNoTx", err)
	}
	if recs := r.store.Records(storage.Outbox); len(recs) != 0 {
		t.Errorf("%d rows before the commit", len(recs))
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if recs := r.store.Records(storage.Outbox); len(recs) != len(ways) {
		t.Errorf("%d rows after the commit, want %d", len(recs), len(ways))
	}
}

func TestContextWithNoTxPublishesAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{})
	if err := r.Publish(cap.ContextWithTx(t.Context(), cap.NoTx), nil, "t", 1); err != nil {
		t.Fatal(err)
	}
	r.row(t, storage.Outbox)
}

// Case C013: what a request's context does to its message.
func TestTheRequestsContextDecidesUntilTheCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := running(t, cap.Options{}, subscribe.To("t", j.handler))

		ctx, cancel := context.WithCancel(t.Context())
		tx := r.begin(ctx, t)
		if err := r.Publish(ctx, tx, "t", "cut before the commit"); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := tx.Commit(); err == nil {
			t.Error("Commit after the end of the context: no error")
		}

		ctx, cancel = context.WithCancel(t.Context())
		tx = r.begin(ctx, t)
		if err := r.Publish(ctx, tx, "t", "cut after the commit"); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		cancel()

		ctx, cancel = context.WithCancel(t.Context())
		if err := r.Publish(ctx, cap.NoTx, "t", "cut after Publish"); err != nil {
			t.Fatal(err)
		}
		cancel()
		elapse(time.Minute)
		if got := j.sorted(); !slices.Equal(got, []string{"cut after Publish", "cut after the commit"}) {
			t.Errorf("handled %v", got)
		}
	})
}

// Cases C015 and C023: every commit is noticed, not just found by the next scan.
func TestCommitsAreNoticedWithoutTheScan(t *testing.T) {
	t.Parallel()
	ways := map[string]func(ctx context.Context, r *rig, name string) error{
		"InTx": func(ctx context.Context, r *rig, name string) error {
			return r.InTx(ctx, func(ctx context.Context, tx cap.Tx) error { return r.Publish(ctx, tx, "t", name) })
		},
		"committed elsewhere": func(ctx context.Context, r *rig, name string) error {
			tx, err := r.store.Begin(ctx)
			if err != nil {
				return err
			}
			if err := r.Publish(ctx, tx, "t", name); err != nil {
				return err
			}
			done := make(chan error)
			go func() { done <- tx.Commit() }()
			return <-done
		},
		"context": func(ctx context.Context, r *rig, name string) error {
			return r.InTx(ctx, func(ctx context.Context, _ cap.Tx) error { return r.Publish(ctx, nil, "t", name) })
		},
		"NoTx": func(ctx context.Context, r *rig, name string) error { return r.Publish(ctx, cap.NoTx, "t", name) },
		"due time that has passed": func(ctx context.Context, r *rig, name string) error {
			return r.InTx(ctx, func(ctx context.Context, tx cap.Tx) error {
				defer pause(time.Second)
				return r.Publish(ctx, tx, "t", name, cap.WithDueAt(time.Now().Add(-time.Hour)))
			})
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := newJournal()
				r := running(t, cap.Options{PollInterval: 10 * time.Minute, FallbackWindow: time.Hour}, subscribe.To("t", j.handler))
				elapse(time.Second)
				for i := range 3 { // three transactions, one after another
					if err := way(t.Context(), r, name); err != nil {
						t.Fatal(err)
					}
					begun := time.Now()
					j.wait(t, i+1)
					if d := time.Since(begun); d > 100*time.Millisecond {
						t.Errorf("handled %s after the commit of message %d", d, i+1)
					}
				}
			})
		})
	}
}
