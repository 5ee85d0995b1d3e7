package testenv

import (
	"strconv"
	"strings"
	"syscall"
	"time"
)

func redis() Kind {
	return Kind{
		Name:      "Redis",
		Variable:  "GOCAP_REDIS_URL",
		Default:   redisURL("127.0.0.1:6379"),
		BinFolder: "GOCAP_REDIS_BIN",
		Package:   "redis-server",
		programs: []program{{"redis-server", []string{
			"/usr/bin", "/usr/local/bin", "/opt/homebrew/opt/redis*/bin", "/usr/local/opt/redis*/bin",
		}}},
		config: func(o own) (string, error) {
			return strings.Join(append([]string{"--protected-mode no"}, redisOptions(o.settings)...), " "), nil
		},
		service: "redis",
		dsn:     redisURL,
		probe:   probeRedis,
		process: redisProcess,
		durable: []string{"appendonly=yes", "appendfsync=always"},
		fast:    []string{"save=''"},
	}
}

func redisURL(addr string) string { return "redis://" + addr + "/0" }

// redisOptions writes settings of redis.conf as arguments.
func redisOptions(settings []string) []string {
	var args []string
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		args = append(args, "--"+name+" "+value)
	}
	return args
}

func redisProcess(o own) (node, error) {
	program, err := redis().find("redis-server")
	if err != nil {
		return nil, err
	}
	args := []string{program, "--bind", "127.0.0.1", "--port", strconv.Itoa(o.port), "--dir", o.dir}
	for _, option := range redisOptions(o.settings) {
		name, value, _ := strings.Cut(option, " ")
		args = append(args, name, strings.Trim(value, "'")) // no shell takes the quotes away
	}
	return &process{
		dir: o.dir, args: args, env: environment(o.dir), watch: o.watch,
		end: syscall.SIGTERM, grace: 10 * time.Second,
	}, nil
}
