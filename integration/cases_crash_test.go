package integration

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/mysql"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/storage/sqlite"
)

// kinds makes a database of each kind.
func kinds() map[string]func(t *testing.T) (dsn string) {
	return map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { t.Helper(); return file(t) },
		"postgres": func(t *testing.T) string { t.Helper(); return postgresDatabase(t) },
		"mariadb":  func(t *testing.T) string { t.Helper(); return mariaDB(t).FormatDSN() },
	}
}

// openKind opens a store as a child process gets it: the name of the kind, and
// where it is.
func openKind(kind, dsn string) (*gormstore.Store, error) {
	cfg := &gorm.Config{Logger: logger.Discard}
	switch kind {
	case "postgres":
		return postgres.Open(dsn, postgres.Config{MaxConns: 4, GORM: cfg})
	case "mariadb":
		return mysql.Open(dsn, mysql.Config{MaxConns: 4, GORM: cfg})
	}
	return sqlite.Open(dsn, sqlite.Config{Synchronous: "NORMAL", BusyTimeout: 20 * time.Second, GORM: cfg})
}

// TestC024KilledBeforeItIsSettled: a process is killed when it has committed
// messages that it could not send, or has sent messages whose confirms have not
// reached it. The next process sends them all, and the inbox drops what comes
// twice.
func TestC024KilledBeforeItIsSettled(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"away", "mute"} {
		for kind, database := range kinds() {
			t.Run(kind+" "+mode, func(t *testing.T) {
				t.Parallel()
				killUnsent(t, kind, database(t), mode)
			})
		}
	}
}

// Of unsentChild.
const (
	unsentTxs  = 20
	unsentEach = 10
	sentRows   = "SELECT count(*) FROM cap_published WHERE status = 2"
)

func killUnsent(t *testing.T, kind, dsn, mode string) {
	t.Helper()
	r := newRabbit(t)
	var j journal
	begun(t, made(t, opened(t, file(t)), nil, r.options, serving(inHandled("t", j.handle))))
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this test binary
	cmd.Env = append(os.Environ(), childEnv+"=unsent", "GOCAP_TEST_KIND="+kind, "GOCAP_TEST_DB="+dsn,
		"GOCAP_TEST_VERSION="+r.version, "GOCAP_TEST_MODE="+mode)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "committed\n" {
		t.Errorf("the child said %q, %v", line, err)
	}
	var want []string
	if mode == "mute" {
		want = append(want, "first")
		j.wait(t, 2) // some have been sent
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	store, err := openKind(kind, dsn)
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	if n := number(t, store.DB(), sentRows); n != len(want) {
		t.Errorf("%d rows count as sent, want %d", n, len(want))
	}
	begun(t, made(t, store, nil, r.second(t).options, serving(), leased))
	since := time.Now()
	for i := range unsentTxs * unsentEach {
		want = append(want, fmt.Sprint(i))
	}
	j.waitFor(t, want)
	settled(t, store.DB(), window)
	t.Logf("all were sent %s after the start", time.Since(since))
	j.exactly(t, want)
}

// unsentChild commits messages while its broker is away or mute, and stays.
func unsentChild() {
	ctx := context.Background()
	store, err := openKind(os.Getenv("GOCAP_TEST_KIND"), os.Getenv("GOCAP_TEST_DB"))
	check(err)
	r := rabbitOf(rabbitURL(), os.Getenv("GOCAP_TEST_VERSION"))
	bus, err := cap.New(short(store, nil, r.options, serving(), leased))
	check(err)
	r.network(os.Getenv("GOCAP_TEST_MODE") != "away")
	check(bus.Start(ctx))
	if os.Getenv("GOCAP_TEST_MODE") == "mute" {
		check(bus.Publish(ctx, cap.NoTx, "t", "first")) // opens the channel
		for sent := int64(0); sent == 0; <-time.After(10 * time.Millisecond) {
			check(store.DB().Raw(sentRows).Scan(&sent).Error)
		}
		r.silence()
	}
	for tx := range unsentTxs {
		check(bus.InTx(ctx, func(ctx context.Context, t cap.Tx) error {
			for i := range unsentEach {
				if err := bus.Publish(ctx, t, "t", fmt.Sprint(unsentEach*tx+i)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	say("committed")
	select {}
}
