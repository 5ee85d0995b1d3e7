package testenv

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func pgBouncer() Kind {
	return Kind{
		Name:      "PgBouncer",
		BinFolder: "GOCAP_PGBOUNCER_BIN",
		Package:   "pgbouncer",
		programs: []program{{"pgbouncer", []string{
			"/usr/sbin", "/usr/bin", "/opt/homebrew/opt/pgbouncer/bin", "/usr/local/opt/pgbouncer/bin",
		}}},
		service: "pgbouncer",
		dsn:     postgresDSN,
		config:  pgBouncerConfig,
		probe:   probePostgres,
		process: pgBouncerProcess,
	}
}

func pgBouncerProcess(o own) (node, error) {
	program, err := pgBouncer().find("pgbouncer")
	if err != nil {
		return nil, err
	}
	text, err := pgBouncerConfig(o)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(o.dir, "pgbouncer.ini")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if err := prepare(o.dir, "postgres"); err != nil {
		return nil, err
	}
	return &process{
		dir: o.dir, args: []string{program, config}, env: environment(o.dir), watch: o.watch, user: "postgres",
		// Newer versions wait for their clients at first.
		end: syscall.SIGTERM, grace: time.Second,
	}, nil
}

// pgBouncerConfig is the text of pgbouncer.ini.
func pgBouncerConfig(o own) (string, error) {
	u, err := url.Parse(o.target)
	if err != nil {
		return "", fmt.Errorf("testenv: the target of PgBouncer is not a URL: %w", err)
	}
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		return "", fmt.Errorf("testenv: the target of PgBouncer: %w", err)
	}
	login := "user=" + u.User.Username()
	if password, has := u.User.Password(); has {
		login += " password='" + strings.ReplaceAll(password, "'", "''") + "'"
	}
	lines := append([]string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%s %s", host, port, login),
		"[pgbouncer]",
		"listen_addr=127.0.0.1",
		fmt.Sprintf("listen_port=%d", o.port),
		"unix_socket_dir=",
		"auth_type=any",
		"pool_mode=transaction",
		"max_client_conn=500",
	}, o.settings...)
	return strings.Join(lines, "\n") + "\n", nil
}
