package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func rabbitMQ() Kind {
	return Kind{
		Name:      "RabbitMQ",
		Variable:  "GOCAP_RABBITMQ_URL",
		Default:   rabbitURL("127.0.0.1:5672"),
		BinFolder: "GOCAP_RABBITMQ_BIN",
		Package:   "rabbitmq-server",
		programs: []program{
			// What Debian has in PATH switches to the system's user and settings;
			// the program itself stands in this folder.
			{"rabbitmq-server", []string{
				"/usr/lib/rabbitmq/bin", "/opt/homebrew/opt/rabbitmq/sbin", "/usr/local/opt/rabbitmq/sbin",
			}},
			{"epmd", []string{"/usr/lib/erlang/bin", "/usr/local/lib/erlang/bin", "/opt/homebrew/opt/erlang/bin"}},
		},
		config:  func(o own) (string, error) { return strings.Join(o.settings, "\n"), nil },
		service: "rabbitmq",
		dsn:     rabbitURL,
		probe:   probeRabbitMQ,
		process: rabbitMQProcess,
	}
}

func rabbitURL(addr string) string { return "amqp://guest:guest@" + addr + "/" }

func rabbitMQProcess(o own) (node, error) {
	k := rabbitMQ()
	server, err := k.find("rabbitmq-server")
	if err != nil {
		return nil, err
	}
	epmd, err := k.find("epmd")
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(o.dir, "rabbitmq.conf")
	lines := append([]string{
		"listeners.tcp.default = " + loopback(o.port),
		"disk_free_limit.absolute = 10MB", // publishers stop below it
	}, o.settings...)
	if err := os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	empty := filepath.Join(o.dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		return nil, err
	}
	plugins := filepath.Join(o.dir, "enabled_plugins")
	if err := os.WriteFile(plugins, []byte("[].\n"), 0o600); err != nil {
		return nil, err
	}
	names, err := freePort()
	if err != nil {
		return nil, err
	}
	dist, err := freePort()
	if err != nil {
		return nil, err
	}
	// A name server of its own: the one that a node starts would outlive it, and
	// be everybody's on this machine.
	nameServer := []string{"ERL_EPMD_PORT=" + strconv.Itoa(names), "ERL_EPMD_ADDRESS=127.0.0.1"}
	env := append(
		nameServer,
		fmt.Sprintf("RABBITMQ_NODENAME=gocap-%d@localhost", o.port),
		"RABBITMQ_CONFIG_FILE="+conf,
		"RABBITMQ_CONF_ENV_FILE="+empty, // not that of the system
		"RABBITMQ_ENABLED_PLUGINS_FILE="+plugins,
		"RABBITMQ_MNESIA_BASE="+filepath.Join(o.dir, "data"),
		"RABBITMQ_LOG_BASE="+o.dir,
		"RABBITMQ_LOGS=-",
		"RABBITMQ_PID_FILE="+filepath.Join(o.dir, "pid"),
		"RABBITMQ_DIST_PORT="+strconv.Itoa(dist),
		"ERL_MAX_PORTS=4096", // where no limit is set, Erlang sizes a table by it
		// Then the script becomes the server instead of waiting for it.
		"RUNNING_UNDER_SYSTEMD=true",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 2:2 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}",
	)
	return &process{
		dir: o.dir, args: []string{server}, env: environment(o.dir, env...), watch: o.watch,
		end: syscall.SIGTERM, grace: 30 * time.Second,
		also: &process{
			dir: o.dir, args: []string{epmd}, env: environment(o.dir, nameServer...), watch: o.watch,
			end: syscall.SIGTERM, grace: time.Second,
		},
	}, nil
}
