package integration

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestMessageThatKillsItsProcess: such a message ends failed after five deaths,
// with its callback, and its neighbours are handled.
func TestMessageThatKillsItsProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	deaths, said := 0, ""
	for said != "done" {
		cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this test binary
		cmd.Env = append(os.Environ(), childEnv+"=poison", "GOCAP_TEST_DB="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			said = lines.Text()
			t.Log(said)
		}
		if err := cmd.Wait(); err == nil {
			break
		}
		if deaths++; deaths > 6 {
			t.Fatal("the message goes on killing")
		}
	}
	if said != "done" || deaths != 5 {
		t.Errorf("the last child said %q; %d deaths, want 5", said, deaths)
	}
	store, err := sqlite.Open(path, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // the test is over
	if got := column(t, store.DB(), "SELECT DISTINCT id FROM handled ORDER BY id"); strings.Join(got, " ") != "n0 n1 n2 n3 n4" {
		t.Errorf("neighbours handled: %q", got)
	}
	if got := column(t, store.DB(), "SELECT status||' '||last_error FROM cap_received WHERE name = 'poison'"); len(got) != 1 || !strings.HasPrefix(got[0], "3 its process died") {
		t.Errorf("the message ended %q", got)
	}
}

// poisonChild handles neighbours and a message that kills it, and says "done"
// when nothing is left.
func poisonChild() {
	ctx := context.Background()
	store, err := sqlite.Open(os.Getenv("GOCAP_TEST_DB"), sqlite.Config{})
	check(err)
	check(store.Migrate(ctx))
	check(store.DB().Exec("CREATE TABLE IF NOT EXISTS handled (id TEXT)").Error)
	failed := make(chan cap.FailedInfo, 10)
	bus, err := cap.New(cap.Options{
		Storage: store, Transport: memqueue.New(memqueue.Config{}), Registry: &subscribe.Registry{},
		Subscriptions: []subscribe.Subscription{
			subscribe.To("poison", func(context.Context, string) error {
				say("killed")
				return syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}, subscribe.Group("g")),
			subscribe.To("neighbour", func(ctx context.Context, id string) error {
				<-time.After(20 * time.Millisecond)
				return store.DB().WithContext(ctx).Exec("INSERT INTO handled VALUES (?)", id).Error
			}, subscribe.Group("g")),
		},
		FailedThresholdCallback: func(_ context.Context, info cap.FailedInfo) { failed <- info },
		FallbackWindow:          time.Second, PollInterval: 50 * time.Millisecond, Concurrency: 2,
	})
	check(err)
	var published int64
	check(store.DB().Raw("SELECT count(*) FROM cap_published").Scan(&published).Error)
	if published == 0 {
		check(bus.Publish(ctx, cap.NoTx, "poison", "p"))
		for i := range 5 {
			check(bus.Publish(ctx, cap.NoTx, "neighbour", fmt.Sprintf("n%d", i)))
		}
	}
	check(bus.Start(ctx))
	select {
	case info := <-failed:
		if info.Message.Topic != "poison" || info.Attempts != 0 {
			say("wrong callback:", info)
		}
	case <-time.After(20 * time.Second):
		check(fmt.Errorf("neither killed nor done"))
	}
	var left int64
	for end := time.Now().Add(10 * time.Second); ; <-time.After(20 * time.Millisecond) {
		check(store.DB().Raw(open).Scan(&left).Error)
		if left == 0 || time.Now().After(end) {
			break
		}
	}
	check(bus.Stop(ctx))
	check(store.Close())
	say("done")
}

func check(err error) {
	if err != nil {
		say("child:", err)
		os.Exit(3)
	}
}
