package captest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/cap/captest"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
)

func TestNothingPublishedNamesWhatWas(t *testing.T) {
	t.Parallel()
	observe(t, func(tb testing.TB) {
		tb.Helper()
		bus := captest.New(tb)
		captest.RequirePublished[order](tb, bus, "order.placed")
	}).wantFatal(t, `nothing was published to "order.placed"`, "nor to any other topic", "committed")
	observe(t, func(tb testing.TB) {
		tb.Helper()
		bus := captest.New(tb)
		publish(tb, bus, "order.paid", order{8})
		publish(tb, bus, "audit", order{8})
		publish(tb, bus, "audit", order{8})
		captest.RequirePublished[order](tb, bus, "order.placed")
	}).wantFatal(t, `nothing was published to "order.placed"`, `"audit" (2), "order.paid" (1)`)
}

func TestMoreThanOneNamesThem(t *testing.T) {
	t.Parallel()
	s := observe(t, func(tb testing.TB) {
		tb.Helper()
		bus := captest.New(tb)
		for i := range 12 {
			publish(tb, bus, "placed", order{i})
		}
		captest.RequirePublished[order](tb, bus, "placed")
	})
	s.wantFatal(t, "12 messages were published", `{"ID":0}`, `{"ID":9}`, "and 2 more", "captest.Published")
	if strings.Contains(s.output(), `{"ID":10}`) {
		t.Errorf("it quotes all: %s", s.output())
	}
}

func TestABodyOfAnotherTypeIsQuoted(t *testing.T) {
	t.Parallel()
	observe(t, func(tb testing.TB) {
		tb.Helper()
		bus := captest.New(tb)
		publish(tb, bus, "placed", "seven")
		captest.RequirePublished[order](tb, bus, "placed")
	}).wantFatal(t, "cannot be decoded as captest_test.order", `"seven"`)
}

func TestPublishedKeepsTheOrder(t *testing.T) {
	t.Parallel()
	bus := captest.New(t)
	if got := captest.Published[int](t, bus, "n"); len(got) != 0 {
		t.Errorf("published before: %v", got)
	}
	var want []int
	for i := range 1500 { // more than a page
		publish(t, bus, "n", i)
		want = append(want, i)
	}
	publish(t, bus, "other", -1)
	if got := captest.Published[int](t, bus, "n"); !slices.Equal(got, want) {
		t.Errorf("%d messages, want %d in their order", len(got), len(want))
	}
}

// Only what is committed counts; what is delayed does at once.
func TestWhatCounts(t *testing.T) {
	t.Parallel()
	bus := captest.New(t)
	undone := errors.New("undone")
	err := bus.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error {
		if err := bus.Publish(ctx, tx, "placed", order{1}); err != nil {
			return err
		}
		if got := captest.Published[order](t, bus, "placed"); len(got) != 0 { //nolint:contextcheck // it has that of t
			t.Errorf("published before the commit: %v", got)
		}
		return undone
	})
	if !errors.Is(err, undone) || len(captest.Published[order](t, bus, "placed")) != 0 {
		t.Errorf("after the rollback: %v, published %v", err, captest.Published[order](t, bus, "placed"))
	}
	publish(t, bus, "placed", order{2}, cap.WithDelay(time.Hour))
	captest.Drain(t, bus)
	if got := captest.RequirePublished[order](t, bus, "placed"); got != (order{2}) {
		t.Errorf("delayed: %v", got)
	}
}

// A storage without an operator has nothing to read from.
func TestAStorageThatTellsNothingEndsTheTest(t *testing.T) {
	t.Parallel()
	observe(t, func(tb testing.TB) {
		tb.Helper()
		bus := captest.NewWith(tb, func(o *cap.Options) { o.Storage = silent{memstore.New(memstore.Config{})} })
		captest.RequirePublished[order](tb, bus, "placed")
	}).wantFatal(t, "operator")
}

// silent has the methods that a storage must have, and no other.
type silent struct{ storage.Storage }
