package ordering

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// childEnv makes this binary an instance.
const childEnv = "GOCAP_ORDER_CHILD"

func TestMain(m *testing.M) {
	if db := os.Getenv(childEnv); db != "" {
		if err := instance(db); err != nil {
			fmt.Fprintln(os.Stderr, "instance:", err)
			os.Exit(1)
		}
		return
	}
	// gorm's cache of prepared statements has a goroutine that never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

// fromEnv reads a number of the environment.
func fromEnv(tb testing.TB, name string, otherwise int) int {
	tb.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return n
}
