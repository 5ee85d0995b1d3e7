package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func nats() Kind {
	return Kind{
		Name:      "NATS",
		Variable:  "GOCAP_NATS_URL",
		Default:   natsURL("127.0.0.1:4222"),
		BinFolder: "GOCAP_NATS_BIN",
		Package:   "nats-server",
		programs: []program{{"nats-server", []string{
			"/usr/sbin", "/opt/homebrew/opt/nats-server/bin", "/usr/local/opt/nats-server/bin",
		}}},
		service: "nats",
		dsn:     natsURL,
		config:  func(o own) (string, error) { return strings.Join(o.settings, "\n"), nil },
		probe:   probeNATS,
		process: natsProcess,
	}
}

func natsURL(addr string) string { return "nats://" + addr }

func natsProcess(o own) (node, error) {
	program, err := nats().find("nats-server")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(o.dir, "nats.conf")
	lines := append([]string{
		"listen: " + loopback(o.port),
		`jetstream { store_dir: "` + filepath.Join(o.dir, "data") + `" }`,
	}, o.settings...)
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	return &process{
		dir: o.dir, args: []string{program, "-c", config}, env: environment(o.dir), watch: o.watch,
		end: syscall.SIGTERM, grace: 10 * time.Second,
	}, nil
}
