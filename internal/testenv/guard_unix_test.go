//go:build unix

package testenv

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// guarded is the variable in which a copy of this test binary is told to play the
// process that gets killed.
const guarded = "GOCAP_TESTENV_GUARDED"

func TestServerEndsWithAKilledTestProcess(t *testing.T) {
	t.Parallel()
	if os.Getenv(guarded) != "" {
		s := StartMariaDB(t)
		_, _ = os.Stdout.WriteString("\naddress " + s.Addr + "\n")
		select {} // until we are killed
	}
	dir := t.TempDir() // the copy cannot clean up
	check(t, handOver(dir, mariaDBUser))
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$") //nolint:gosec // ourselves
	cmd.Env = append(os.Environ(), guarded+"=1", "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	var addr string
	lines := bufio.NewScanner(out)
	for addr == "" && lines.Scan() {
		addr, _ = strings.CutPrefix(lines.Text(), "address ")
		if addr == lines.Text() {
			addr = ""
		}
	}
	check(t, cmd.Process.Kill())
	_ = cmd.Wait() // says that it was killed
	if addr == "" {
		t.Fatal("the copy has not started its server")
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-tick.C {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		_ = conn.Close()
		if time.Now().After(deadline) {
			t.Fatalf("the server still listens on %s", addr)
		}
	}
}
