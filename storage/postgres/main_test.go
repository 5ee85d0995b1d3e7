package postgres_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childDSN makes this program another instance, which starts on that database.
const childDSN = "GOCAP_TEST_CHILD_DSN"

func TestMain(m *testing.M) {
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
