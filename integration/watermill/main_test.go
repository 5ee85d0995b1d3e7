package watermill

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/transporttest"
	"github.com/capbus/gocap/transport/wmadapter"
)

// wait bounds every wait of a test for one event.
const wait = time.Minute

func TestMain(m *testing.M) {
	// sarama's metrics have one goroutine a process, which never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// unit is a short name that is unique.
func unit() string {
	id := ids.New()
	return fmt.Sprintf("%x", id[10:])
}

// suite runs the conformance suite.
func suite(t *testing.T, open func(tb testing.TB) wmadapter.Config, serial bool) {
	t.Helper()
	transporttest.Suite{Wait: wait, Serial: serial, Open: func(t *testing.T) transport.Transport {
		t.Helper()
		return start(t, open(t))
	}}.Run(t)
}

func bench(b *testing.B, open func(tb testing.TB) wmadapter.Config) {
	b.Helper()
	transporttest.Bench(b, func(b *testing.B) transport.Transport {
		b.Helper()
		return start(b, open(b))
	})
}

// start returns the transport and closes it with the test.
func start(tb testing.TB, cfg wmadapter.Config) *wmadapter.Transport {
	tb.Helper()
	tr := wmadapter.New(cfg)
	check(tb, tr.Validate())
	tb.Cleanup(func() {
		if err := tr.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return tr
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// background is for what is done after the test's own context has ended.
func background(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), wait)
	tb.Cleanup(cancel)
	return ctx
}

// pool is a database of a server of the test's own.
func pool(tb testing.TB, driver, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	check(tb, err)
	// A message in hand holds a connection.
	db.SetMaxOpenConns(400)
	db.SetMaxIdleConns(50)
	tb.Cleanup(func() { check(tb, db.Close()) })
	return db
}
