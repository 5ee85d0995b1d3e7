package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC182NothingSecretInLogs: whatever goes wrong, neither logs at level debug
// nor stored error texts show what is in bodies and headers.
func TestC182NothingSecretInLogs(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-31337"
	var log lines
	type card struct {
		Number int
		Valid  time.Time
	}
	s := start(t, file(t), serving(
		inGroup("fails", func(context.Context, string) error { return errors.New("no") }),
		inGroup("panics", func(context.Context, string) error { panic("no") }),
		inGroup("decode.text", func(context.Context, int) error { return nil }),
		inGroup("decode.field", func(context.Context, card) error { return nil }),
		inGroup("decode.time", func(context.Context, time.Time) error { return nil }),
		inGroup("decode.number", func(context.Context, int8) error { return nil }),
		inGroup("late", func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }),
	), logTo(&log, slog.LevelDebug), func(o *cap.Options) {
		o.FailedRetryCount, o.HandlerTimeout = 2, 50*time.Millisecond
		o.FailedThresholdCallback = func(context.Context, cap.FailedInfo) { panic("no") }
	})
	s.queue.SetFaults(memqueue.Faults{Refuse: func(m *transport.Message) error {
		if m.Topic == "refused" {
			return fmt.Errorf("%w: no", transport.ErrRejected)
		}
		return nil
	}})
	header := cap.WithHeader("authorization", secret)
	for _, topic := range []string{"fails", "panics", "late", "decode.text", "decode.time", "refused"} {
		must(t, s.bus.Publish(t.Context(), cap.NoTx, topic, secret, header))
	}
	must(t, s.bus.Publish(t.Context(), cap.NoTx, "decode.field", map[string]any{"Number": secret, "Valid": secret}))
	must(t, s.bus.Publish(t.Context(), cap.NoTx, "decode.number", 31337))
	must(t, s.queue.InjectTo("g.v1", &cap.Message{ID: "raw", Topic: "decode.text", Body: []byte(secret)}))
	for _, err := range []error{
		s.bus.Publish(t.Context(), cap.NoTx, "t", secret, cap.WithHeader("h", secret+"\x00")),
		s.bus.Publish(t.Context(), secret, "t", "x"),
		s.bus.Publish(t.Context(), cap.NoTx, "t", func() { _ = secret }),
	} {
		if err == nil || strings.Contains(err.Error(), "31337") {
			t.Errorf("error of Publish: %v", err)
		}
	}
	eventually(t, "all are there", func() bool { return number(t, s.store.DB(), "SELECT count(*) FROM cap_received") == 8 })
	settled(t, s.store.DB(), window)
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "31337") {
			t.Errorf("log line: %s", line)
		}
	}
	for _, table := range []string{"cap_published", "cap_received"} {
		for _, bad := range column(t, s.store.DB(), "SELECT name||': '||last_error FROM "+table+" WHERE last_error LIKE '%31337%'") {
			t.Errorf("stored error of %s: %s", table, bad)
		}
	}
}

// groupProgram prints its default group.
const groupProgram = `package main

import "github.com/capbus/gocap"

func main() { print(gocap.Options{}.WithDefaults().DefaultGroupName) }
`

// TestC188DefaultGroup: it is that of the program's package, whatever the binary
// is called, and there is none where the build does not tell.
func TestC188DefaultGroup(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp(".", "testdata-group-") //nolint:usetesting // within the module
	must(t, err)
	dir = filepath.Base(dir)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	source := filepath.Join(dir, "main.go")
	must(t, os.WriteFile(source, []byte(groupProgram), 0o600))
	run := func(name string, args ...string) string {
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput() //nolint:gosec // paths of the test's own
		if err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
		return string(out)
	}
	bin := t.TempDir()
	for _, name := range []string{"main-1", "main-2", "__debug_bin123"} {
		run("go", "build", "-o", filepath.Join(bin, name), "./"+dir)
		if got, want := run(filepath.Join(bin, name)), "cap.queue.github.com/capbus/gocap/integration/"+dir; got != want {
			t.Errorf("%s: default group %q, want %q", name, got, want)
		}
	}
	if got := run("go", "run", "./"+dir); !strings.HasSuffix(got, dir) {
		t.Errorf("go run of a package: default group %q", got)
	}
	if got := run("go", "run", source); got != "" {
		t.Errorf("go run of a file: default group %q, want none, so that Start refuses", got)
	}
}
