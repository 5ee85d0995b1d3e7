package memtracker_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/capbus/gocap/idempotency"
	"github.com/capbus/gocap/idempotency/memtracker"
	"github.com/capbus/gocap/idempotency/trackertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	trackertest.Run(t, func(testing.TB) idempotency.Tracker { return memtracker.New(memtracker.Config{}) })
}

func TestAKeyIsNewAgainAfterRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tracker := memtracker.New(memtracker.Config{Retention: time.Hour})
		runs := 0
		once := func() {
			t.Helper()
			if err := tracker.Once(t.Context(), "a", func(context.Context) error { runs++; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		once()
		<-time.After(time.Hour - 1)
		once()
		if runs != 1 {
			t.Fatalf("%d runs within Retention, want 1", runs)
		}
		<-time.After(1)
		if done, err := tracker.HasProcessed(t.Context(), "a"); done || err != nil {
			t.Errorf("after Retention it is done: %v, %v", done, err)
		}
		once()
		if runs != 2 {
			t.Errorf("%d runs after Retention, want 2", runs)
		}
	})
}

func TestABadConfigIsReported(t *testing.T) {
	t.Parallel()
	tracker := memtracker.New(memtracker.Config{Retention: -1})
	_, has := tracker.HasProcessed(t.Context(), "a")
	once := tracker.Once(t.Context(), "a", func(context.Context) error { t.Error("fn ran"); return nil })
	for _, err := range []error{has, once, tracker.MarkAsProcessed(t.Context(), "a")} {
		if err == nil || !strings.Contains(err.Error(), "Config.Retention is negative") {
			t.Errorf("error %v", err)
		}
	}
}
