package cap_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
)

// arrivals tells when, since it was made, each payload was handled.
func arrivals(t *testing.T, opts cap.Options) (*rig, *journal, func() []time.Duration) {
	t.Helper()
	begun, j := time.Now(), newJournal()
	var at []time.Duration
	r := running(t, opts, subscribe.To("t", func(ctx context.Context, s string) error {
		at = append(at, time.Since(begun)) // one handler at a time
		return j.handler(ctx, s)
	}, subscribe.Concurrency(1)))
	return r, j, func() []time.Duration { return at }
}

func TestDelayedMessagesLeaveInTimeAndNotBefore(t *testing.T) {
	t.Parallel()
	const slack = 100 * time.Millisecond
	for name, c := range map[string]struct {
		opt  func() cap.PublishOption
		want time.Duration
	}{
		"no delay":       {func() cap.PublishOption { return cap.WithDelay(0) }, 0},
		"delay":          {func() cap.PublishOption { return cap.WithDelay(90 * time.Second) }, 90 * time.Second},
		"short delay":    {func() cap.PublishOption { return cap.WithDelay(70 * time.Millisecond) }, 70 * time.Millisecond},
		"due":            {func() cap.PublishOption { return cap.WithDueAt(time.Now().Add(time.Hour)) }, time.Hour},
		"due, elsewhere": {func() cap.PublishOption { return cap.WithDueAt(time.Now().Add(time.Hour).In(time.FixedZone("", 3600))) }, time.Hour},
		"due long ago":   {func() cap.PublishOption { return cap.WithDueAt(time.Now().Add(-time.Hour)) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				// The scan alone would be late.
				r, j, at := arrivals(t, cap.Options{PollInterval: 10 * time.Minute, FallbackWindow: time.Hour})
				synctest.Wait()
				if err := r.Publish(t.Context(), cap.NoTx, "t", name, c.opt()); err != nil {
					t.Fatal(err)
				}
				elapse(2 * time.Hour)
				if got := j.all(); len(got) != 1 {
					t.Fatalf("handled %d times, want once", len(got))
				}
				if d := at()[0] - c.want; d < 0 || d > slack {
					t.Errorf("handled after %s, want within %s of %s", at()[0], slack, c.want)
				}
			})
		})
	}
}

func TestADelayedMessageIsDelayedUntilItIsTried(t *testing.T) {
	t.Parallel()
	r := newRig(t, cap.Options{})
	if err := r.Publish(t.Context(), cap.NoTx, "t", 1, cap.WithDelay(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if rec := r.row(t, storage.Outbox); rec.Status != storage.Delayed {
		t.Errorf("status %v, want delayed", rec.Status)
	}
}

func TestDelaysHoldAcrossARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, j := time.Now(), newJournal()
		r := newRig(t, cap.Options{}, subscribe.To("t", j.handler))
		if err := r.Publish(t.Context(), cap.NoTx, "t", "late", cap.WithDelay(time.Hour)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := r.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			elapse(10 * time.Minute)
			if err := r.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := j.all(); len(got) > 0 {
			t.Fatalf("handled before its time: %v", got)
		}
		r.start(t)
		j.wait(t, 0)
		elapse(31 * time.Minute)
		if got := j.all(); !slices.Equal(got, []string{"late"}) {
			t.Errorf("handled %v by %s, want it once", got, time.Since(begun))
		}
	})
}

func TestManyDelaysInOneTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, j, at := arrivals(t, cap.Options{})
		err := r.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error {
			return r.PublishMany(ctx, tx,
				cap.Outgoing{Topic: "t", Msg: "third", Opts: []cap.PublishOption{cap.WithDelay(3 * time.Minute)}},
				cap.Outgoing{Topic: "t", Msg: "first"},
				cap.Outgoing{Topic: "t", Msg: "second", Opts: []cap.PublishOption{cap.WithDelay(time.Minute)}})
		})
		if err != nil {
			t.Fatal(err)
		}
		elapse(10 * time.Minute)
		if got := j.all(); !slices.Equal(got, []string{"first", "second", "third"}) {
			t.Fatalf("handled %v", got)
		}
		for i, want := range []time.Duration{0, time.Minute, 3 * time.Minute} {
			if d := at()[i] - want; d < 0 || d > time.Second {
				t.Errorf("%s handled after %s, want %s", j.all()[i], at()[i], want)
			}
		}
	})
}
