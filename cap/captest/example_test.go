package captest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/cap/captest"
	"github.com/capbus/gocap/subscribe"
)

type OrderPlaced struct{ ID, Cents int }

type OrderCharged struct{ ID, Cents int }

// charge is the code under test.
func charge(ctx context.Context, o OrderPlaced) error {
	return cap.Publish(ctx, nil, "order.charged", OrderCharged(o))
}

// In a test, t is the test's *testing.T.
func Example() {
	test := func(t testing.TB) { //nolint:thelper // it stands for a test
		bus := captest.New(t, subscribe.To("order.placed", charge))
		if err := bus.Publish(t.Context(), cap.NoTx, "order.placed", OrderPlaced{ID: 7, Cents: 990}); err != nil {
			t.Fatalf("publish: %v", err)
		}
		captest.Drain(t, bus)
		fmt.Println(captest.RequirePublished[OrderCharged](t, bus, "order.charged"))
	}
	inTest(test)
	// Output: {7 990}
}
