package testenv

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// mariaDBUser is who runs MariaDB where we are root.
const mariaDBUser = "mysql"

func mariaDB() Kind {
	folders := []string{
		"/usr/sbin", "/usr/bin", "/usr/libexec",
		"/opt/homebrew/opt/mariadb*/bin", "/usr/local/opt/mariadb*/bin", "/usr/local/mysql/bin",
	}
	return Kind{
		Name:      "MariaDB",
		Variable:  "GOCAP_MYSQL_DSN",
		Default:   mysqlDSN("127.0.0.1:3306"),
		BinFolder: "GOCAP_MARIADB_BIN",
		Package:   "mariadb-server",
		programs:  []program{{"mariadbd", folders}, {"mariadb-install-db", folders}},
		config:    options("--"),
		service:   "mariadb",
		dsn:       mysqlDSN,
		probe:     probeMySQL,
		process:   mariaDBProcess,
		durable:   []string{"innodb-flush-log-at-trx-commit=1"},
		fast:      []string{"innodb-flush-log-at-trx-commit=0", "innodb-doublewrite=0", "innodb-flush-method=nosync"},
	}
}

func mysqlDSN(addr string) string { return "root@tcp(" + addr + ")/" }

func mariaDBProcess(o own) (node, error) {
	k := mariaDB()
	server, err := k.find("mariadbd")
	if err != nil {
		return nil, err
	}
	install, err := k.find("mariadb-install-db")
	if err != nil {
		return nil, err
	}
	// A server that starts deletes the temporary tables that it finds, also those
	// of another one that shares the folder.
	data, tmp := filepath.Join(o.dir, "data"), filepath.Join(o.dir, "tmp")
	for _, dir := range []string{data, tmp} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	// The system tables need no care: what is lost here is made again.
	if err := prepare(o.dir, mariaDBUser, install, "--no-defaults", "--datadir="+data, "--tmpdir="+tmp, "--skip-test-db",
		"--auth-root-authentication-method=normal", "--innodb-flush-method=nosync"); err != nil {
		return nil, err
	}
	args := []string{
		server, "--no-defaults", "--datadir=" + data, "--tmpdir=" + tmp,
		"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(o.port),
		// Relative to the data, for the path of a socket may have no more than 107
		// bytes; that of a test's folder can have more.
		"--socket=s", "--pid-file=pid",
		"--skip-name-resolve", "--max-connections=300",
	}
	for _, setting := range o.settings {
		args = append(args, "--"+setting)
	}
	return &process{
		dir: o.dir, args: args, env: environment(o.dir), watch: o.watch, user: mariaDBUser,
		end: syscall.SIGTERM, grace: 20 * time.Second, // flushes what it holds
	}, nil
}
