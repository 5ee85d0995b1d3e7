package integration

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// clocked is a transport that takes every message, and notes when.
type clocked struct {
	mu    sync.Mutex
	times map[string]int // that each id was sent
	early int            // before at
	at    time.Time
}

func (c *clocked) Send(_ context.Context, msgs []*transport.Message) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range msgs {
		c.times[m.ID]++
		if time.Now().Before(c.at) {
			c.early++
		}
	}
	return make([]error, len(msgs))
}

func (*clocked) Receive(ctx context.Context, _ transport.Source, _ func(context.Context, []transport.Delivery)) error {
	<-ctx.Done()
	return nil
}

func (*clocked) Check(context.Context) error { return nil }

func (*clocked) Traits() transport.Traits { return transport.Traits{Name: "clocked"} }

func (c *clocked) sent() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.times)
}

// burst is how many messages are due at once on SQLite, which the race detector
// makes 20 times as slow; a full run sets GOCAP_BURST=10000.
const burst = 2000

// TestABurstOfDelayedMessages that are due in the same second is sent once each
// and none early, though the bus is stopped and started before, and amidst.
func TestABurstOfDelayedMessages(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		store := postgresStore(t, postgresDatabase(t), 10)
		sendBurst(t, store, 10_000)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		sendBurst(t, opened(t, file(t)), int(fromEnv(t, "GOCAP_BURST", burst)))
	})
}

func sendBurst(t *testing.T, store *gormstore.Store, n int) {
	t.Helper()
	c := &clocked{times: map[string]int{}}
	bus := made(t, store, c, func(o *cap.Options) { o.FallbackWindow = 20 * time.Second })
	must(t, bus.Start(t.Context()))
	// Publishing takes as long as the machine wants, and must end before.
	c.at = time.Now().Add(30 * time.Second)
	for from := 0; from < n; from += 500 {
		must(t, bus.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error {
			var out []cap.Outgoing
			for i := from; i < min(n, from+500); i++ {
				due := c.at.Add(time.Duration(i) * time.Second / time.Duration(n))
				out = append(out, cap.Outgoing{Topic: "t", Msg: i, Opts: []cap.PublishOption{cap.WithDueAt(due)}})
			}
			return bus.PublishMany(ctx, tx, out...)
		}))
	}
	if left := time.Until(c.at); left < 0 {
		t.Fatalf("publishing took %s too long", -left)
	}
	must(t, bus.Stop(t.Context()))
	amidst := begun(t, made(t, store, c, func(o *cap.Options) { o.FallbackWindow = 20 * time.Second }))
	<-time.After(time.Until(c.at))
	eventually(t, "some are sent", func() bool { return c.sent() > n/10 })
	must(t, amidst.Stop(t.Context()))
	begun(t, made(t, store, c, func(o *cap.Options) { o.FallbackWindow = 20 * time.Second }))
	settled(t, store.DB(), 20*time.Second)
	c.mu.Lock()
	defer c.mu.Unlock()
	twice := 0
	for _, times := range c.times {
		if times > 1 {
			twice++
		}
	}
	if len(c.times) != n || twice > 0 || c.early > 0 {
		t.Errorf("%d messages were sent, %d more than once, %d early; want %d, once each and in time", len(c.times), twice, c.early, n)
	}
}

// TestNoDelayedMessageIsEarlyAfterAKill: what a killed process has published is
// taken over when it is due, not before.
func TestNoDelayedMessageIsEarlyAfterAKill(t *testing.T) {
	t.Parallel()
	path := file(t)
	c := &clocked{times: map[string]int{}, at: time.Now().Add(8 * time.Second)}
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this test binary
	cmd.Env = append(os.Environ(), childEnv+"=delay", "GOCAP_TEST_DB="+path, "GOCAP_TEST_DUE="+c.at.Format(time.RFC3339Nano))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "published\n" {
		t.Errorf("the child said %q, %v", line, err)
	}
	must(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Error("the child ended by itself")
	}
	store := opened(t, path)
	begun(t, made(t, store, c, leased))
	if n := c.sent(); n > 0 && time.Now().Before(c.at) {
		t.Errorf("%d were sent at once", n)
	}
	eventually(t, "all are sent", func() bool { return c.sent() == delayed })
	settled(t, store.DB(), window)
	if c.early > 0 {
		t.Errorf("%d messages were sent before they were due", c.early)
	}
}

// delayed is how many messages delayChild publishes.
const delayed = 100

// delayChild publishes as a running bus, and waits to be killed.
func delayChild() {
	ctx := context.Background()
	at, err := time.Parse(time.RFC3339Nano, os.Getenv("GOCAP_TEST_DUE"))
	check(err)
	s, err := newService(ctx, os.Getenv("GOCAP_TEST_DB"), func(o *cap.Options) {
		o.Transport, o.Subscriptions = &clocked{times: map[string]int{}}, nil
		o.Registry, o.Logger = &subscribe.Registry{}, slog.New(slog.DiscardHandler)
	})
	check(err)
	check(s.bus.Start(ctx))
	for i := range delayed {
		check(s.bus.Publish(ctx, cap.NoTx, "t", fmt.Sprint(i), cap.WithDueAt(at)))
	}
	say("published")
	select {}
}
