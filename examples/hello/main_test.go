package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestREADMEShowsThisProgram: what a newcomer copies is what is compiled here.
func TestREADMEShowsThisProgram(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(program), "\npackage main")
	if !strings.Contains(string(readme), "```go\npackage main"+code+"```") {
		t.Error("README.md does not show examples/hello/main.go")
	}
}

func TestItHandlesItsMessage(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "hello")
	//nolint:gosec // a folder of the test
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), bin) //nolint:gosec // built above
	cmd.Dir = t.TempDir()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	handled := false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if strings.Contains(lines.Text(), "handled: ") {
			handled = true
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || !handled {
		t.Errorf("handled %v, ended with %v", handled, err)
	}
}
