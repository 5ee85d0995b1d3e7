package integration

import (
	"fmt"
	"os"
	"testing"

	driver "github.com/go-sql-driver/mysql"
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
	case "zone":
		zoneChild()
		return
	case "delay":
		delayChild()
		return
	case "halfway":
		halfwayChild()
		return
	case "starter":
		starterChild()
		return
	case "swarm":
		swarmMain()
		return
	case "matrix":
		matrixChild()
		return
	case "unsent":
		unsentChild()
		return
	case "busy":
		busyChild()
		return
	}
	_ = driver.SetLogger(&driver.NopLogger{}) // connections are cut on purpose
	// gorm's cache of prepared statements has a goroutine that never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

// say writes a line that the parent of a child process reads.
func say(words ...any) {
	if _, err := fmt.Fprintln(os.Stdout, words...); err != nil {
		os.Exit(4)
	}
}
