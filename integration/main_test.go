package integration

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childEnv says which child this process is, when a test has started it.
const childEnv = "GOCAP_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "crash":
		crashChild()
		return
	case "poison":
		poisonChild()
		return
	}
	// gorm's cache of prepared statements has a goroutine that never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}
