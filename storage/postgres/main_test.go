package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childDSN makes this program another instance, which starts on that database.
const childDSN = "GOCAP_TEST_CHILD_DSN"

func TestMain(m *testing.M) {
	// The tests wait for the server and for leases, not for this processor.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	if dsn := os.Getenv(childDSN); dsn != "" {
		if err := startAt(context.Background(), dsn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// gorm's cache of prepared statements has a goroutine that never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}
