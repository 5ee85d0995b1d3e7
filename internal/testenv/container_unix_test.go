//go:build unix

package testenv

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A program that plays docker writes down what it is asked for.
func TestContainerTalksToCompose(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	script := "#!/bin/sh\ncmp -s - '" + filepath.Join(mustGetwd(t), "compose.yaml") + "' && same=same\n" +
		`echo "$* $same $GOCAP_PORT $GOCAP_SETTINGS" >>'` + log + "'\n"
	check(t, os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o700)) //nolint:gosec // it is run
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))

	n, err := postgres().container(own{port: 1234, settings: []string{"a=b", "c=d"}})
	check(t, err)
	for _, do := range []func() error{n.start, n.stop, n.kill, n.remove} {
		check(t, do())
	}
	written, err := os.ReadFile(log) //nolint:gosec // ours
	check(t, err)
	const head, tail = "compose --project-name gocap-postgres-1234 --file - ", " same 1234  -c a=b -c c=d"
	want := []string{
		head + "up --detach --no-recreate postgres" + tail,
		head + "stop --timeout 30 postgres" + tail,
		head + "kill --signal KILL postgres" + tail,
		head + "down --volumes --timeout 0" + tail,
	}
	if got := strings.Split(strings.TrimSpace(string(written)), "\n"); !slices.Equal(got, want) {
		t.Errorf("docker was asked for:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func mustGetwd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	check(t, err)
	return dir
}

func TestComposeFileKnowsAllServers(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds() {
		if !strings.Contains(composeFile, "\n  "+k.service+":\n") {
			t.Errorf("%s: compose.yaml has no service %s", k.Name, k.service)
		}
		if k.Variable != "" && !strings.Contains(composeFile, "${GOCAP_PORT:-0}:"+portOf(t, k)+"\"") {
			t.Errorf("%s: compose.yaml does not publish port %s", k.Name, portOf(t, k))
		}
	}
}

// portOf is the usual port of a server: a container uses it too.
func portOf(t *testing.T, k Kind) string {
	t.Helper()
	_, after, found := strings.Cut(k.Default, "127.0.0.1:")
	if !found {
		t.Fatalf("%s: no port in %s", k.Name, k.Default)
	}
	return after[:len(after)-len(strings.TrimLeft(after, "0123456789"))]
}
