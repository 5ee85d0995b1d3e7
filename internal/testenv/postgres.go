package testenv

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

func postgres() Kind {
	// Debian keeps the server programs out of PATH, one folder a version.
	folders := []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*",
		"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin",
	}
	return Kind{
		Name:      "PostgreSQL",
		Variable:  "GOCAP_POSTGRES_DSN",
		Default:   postgresDSN("127.0.0.1:5432"),
		BinFolder: "GOCAP_PG_BIN",
		Package:   "postgresql",
		programs:  []program{{"postgres", folders}, {"initdb", folders}},
		config:    options("-c "),
		service:   "postgres",
		dsn:       postgresDSN,
		probe:     probePostgres,
		process:   postgresProcess,
		fast:      []string{"fsync=off", "synchronous_commit=off", "full_page_writes=off"},
	}
}

func postgresDSN(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}

func postgresProcess(o own) (node, error) {
	k := postgres()
	server, err := k.find("postgres")
	if err != nil {
		return nil, err
	}
	initdb, err := k.find("initdb")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(o.dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	if err := prepare(o.dir, "postgres", initdb, "--pgdata="+data, "--username=postgres", "--auth=trust",
		"--encoding=UTF8", "--no-locale", "--no-sync"); err != nil {
		return nil, err
	}
	args := []string{
		server, "-D", data,
		"-c", "listen_addresses=127.0.0.1", "-c", "port=" + strconv.Itoa(o.port),
		// The path of a socket may have no more than 107 bytes; that of a test's
		// folder can have more.
		"-c", "unix_socket_directories=",
		"-c", "max_connections=200",
	}
	for _, setting := range o.settings {
		args = append(args, "-c", setting)
	}
	return &process{
		dir: o.dir, args: args, env: environment(o.dir), watch: o.watch, user: "postgres",
		end: syscall.SIGINT, grace: 20 * time.Second, // ends sessions, then writes a checkpoint
	}, nil
}
