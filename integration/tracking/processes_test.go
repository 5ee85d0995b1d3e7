package tracking

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/capbus/gocap/idempotency/gormtracker"
	"github.com/capbus/gocap/internal/testenv"
)

// processes, of perProcess goroutines each, want one key at the same time.
const processes = 4

// rounds is the number of keys, one after another.
const rounds = 5

// TestOneEffectOfManyProcesses: whatever wants a key, its effect is there once.
func TestOneEffectOfManyProcesses(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		dsn := d.create(t)
		db := d.openAt(t, dsn).DB()
		tr := tracker(t, db, gormtracker.Config{})
		together(t, d.name, dsn, "", func(key string) int { return effects(t, db, key) })
		for i := range rounds {
			wantKeys(t, tr, map[string]bool{keyOf(i): true})
		}
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		opts, err := redis.ParseURL(testenv.Redis())
		must(t, err)
		client := redis.NewClient(opts)
		t.Cleanup(func() { must(t, client.Close()) })
		prefix := "gocap-test:" + rand.Text() + ":"
		t.Cleanup(func() { forget(t, client, prefix) })
		together(t, "redis", testenv.Redis(), prefix, func(key string) int {
			n, err := client.Get(t.Context(), prefix+key).Int()
			must(t, err)
			return n
		})
	})
}

// A process that is killed in fn leaves neither a key nor an effect.
func TestAKilledProcessLeavesTheKey(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database) {
		t.Helper()
		dsn := d.create(t)
		db := d.openAt(t, dsn).DB()
		tr := tracker(t, db, gormtracker.Config{})
		child := start(t, childEnv+"="+d.name, dsnEnv+"="+dsn, hangEnv+"=1")
		child.hears(t, "hangs")
		must(t, child.cmd.Process.Kill())
		must(t, untilDone(t.Context(), tr, keyOf(0), func(ctx context.Context) error {
			tx, _ := gormtracker.TxFromContext(ctx)
			return write(tx, keyOf(0))
		}))
		if n := effects(t, db, keyOf(0)); n != 1 {
			t.Errorf("%d effects, want that of the second process alone", n)
		}
	})
}

func forget(t *testing.T, client *redis.Client, prefix string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	keys, err := client.Keys(ctx, prefix+"*").Result()
	must(t, err)
	if len(keys) > 0 {
		must(t, client.Del(ctx, keys...).Err())
	}
}

func keyOf(round int) string { return fmt.Sprintf("Order-%d", round) }

func together(t *testing.T, kind, dsn, prefix string, effects func(key string) int) {
	t.Helper()
	children := make([]*process, processes)
	for i := range children {
		children[i] = start(t, childEnv+"="+kind, dsnEnv+"="+dsn, prefixEnv+"="+prefix)
	}
	for _, c := range children {
		c.hears(t, "ready")
	}
	for i := range rounds {
		for _, c := range children {
			_, err := fmt.Fprintln(c.in, keyOf(i))
			must(t, err)
		}
		for _, c := range children {
			c.hears(t, "done")
		}
		if n := effects(keyOf(i)); n != 1 {
			t.Errorf("%s: %d effects of one key, want 1", kind, n)
		}
	}
	for _, c := range children {
		must(t, c.in.Close())
		must(t, c.cmd.Wait())
	}
}

// process is a copy of this test binary.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	said *bufio.Reader
}

func start(t *testing.T, env ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0]) //nolint:gosec,noctx // this test binary; it is ended below
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &process{cmd, in, bufio.NewReader(out)}
}

func (p *process) hears(t *testing.T, want string) {
	t.Helper()
	if line, err := p.said.ReadString('\n'); line != want+"\n" {
		t.Fatalf("a child said %q, %v; want %q", line, err, want)
	}
}
