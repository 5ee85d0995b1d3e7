package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// newDatabase makes a database that is dropped after the test.
func newDatabase(t *testing.T) string {
	t.Helper()
	server := cmp.Or(os.Getenv("GOCAP_POSTGRES_DSN"), "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable")
	name := "gocap_test_" + strings.ToLower(rand.Text()[:12])
	run := func(ctx context.Context, q string) {
		conn, err := pgx.Connect(ctx, server)
		if err == nil {
			_, err = conn.Exec(ctx, q)
			_ = conn.Close(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run(t.Context(), `CREATE DATABASE `+name)
	t.Cleanup(func() { run(context.WithoutCancel(t.Context()), `DROP DATABASE `+name+` WITH (FORCE)`) })
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// TestItNeedsNothingButPostgreSQL runs the program until both groups have handled
// the order, and stops it.
func TestItNeedsNothingButPostgreSQL(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	bin := filepath.Join(t.TempDir(), "pgonly")
	//nolint:gosec // a folder of the test
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), bin) //nolint:gosec // built above
	cmd.Env = append(os.Environ(), "DATABASE_URL="+dsn)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	packed := false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if !strings.Contains(lines.Text(), "packing: ") {
			continue
		}
		packed = true
		if n := charges(t, dsn); n != 1 {
			t.Errorf("there are %d charges", n)
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
	}
	if err := cmd.Wait(); err != nil || !packed {
		t.Errorf("packed %v, ended with %v", packed, err)
	}
}

// charges waits until there is one.
func charges(t *testing.T, dsn string) int {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // it is not used any more
	n := 0
	for end := time.Now().Add(30 * time.Second); n == 0 && time.Now().Before(end); {
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM charges`).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	return n
}
