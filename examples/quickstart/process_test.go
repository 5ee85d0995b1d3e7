package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait of the tests.
const patience = time.Minute

// build builds the program as a newcomer's machine would: with Go alone.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "quickstart.exe")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".") //nolint:gosec // a path of the test's own
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, text)
	}
	return bin
}

// process is the program as a child.
type process struct {
	cmd            *exec.Cmd
	url            string
	stdout, stderr bytes.Buffer // to be read after wait
	ended          chan struct{}
}

// program is a run of the program that ends after patience.
func program(t *testing.T, bin string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, bin, args...) //nolint:gosec // what build has built
}

// start starts the program on a free port and waits until it listens.
func start(t *testing.T, bin string, args ...string) *process {
	t.Helper()
	p := &process{cmd: program(t, bin, append([]string{"-addr", "127.0.0.1:0"}, args...)...), ended: make(chan struct{})}
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	first, _ := lines.ReadString('\n') // "" when it has ended instead
	go func() {
		defer close(p.ended)
		_, _ = io.Copy(&p.stdout, lines)
		_ = p.cmd.Wait() // its ProcessState says the same
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
	})
	url, ok := strings.CutPrefix(strings.TrimSpace(first), "Listening on ")
	if !ok {
		_ = p.cmd.Process.Kill()
		t.Fatalf("it does not listen: %q, %s\n%s", first, p.wait(t), p.stderr.String())
	}
	p.url = strings.TrimSuffix(url, "/")
	return p
}

// wait waits for the end of the process.
func (p *process) wait(t *testing.T) *os.ProcessState {
	t.Helper()
	<-p.ended
	return p.cmd.ProcessState
}

// request makes a request and returns what comes back, all of it. It may be
// called from any goroutine.
func (p *process) request(t *testing.T, method, path, body string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer func() { _ = res.Body.Close() }() // it is read to its end
	all, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, string(all)
}

func (p *process) report(t *testing.T) (r report) {
	t.Helper()
	status, text := p.request(t, http.MethodGet, "/status", "")
	if err := json.Unmarshal([]byte(text), &r); err != nil || status != http.StatusOK {
		t.Fatalf("status: %d %s: %v", status, text, err)
	}
	return r
}

// settled waits until so many messages are published and sent, and handled by
// both groups.
func (p *process) settled(t *testing.T, messages int) report {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		r := p.report(t)
		if n := r.Tables; n.Published == messages && n.Sent == messages && n.Received == 2*messages && n.Handled == 2*messages {
			return r
		}
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("%d messages should have been sent, and handled by both groups: %+v", messages, r)
		}
	}
}
