package rabbitmq_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// node is a broker of a test's own, which it may stop, kill and alarm.
type node struct {
	t      *testing.T
	dir    string
	port   string
	env    []string
	bin    string
	cmd    *exec.Cmd
	exited chan struct{}
}

// newNode makes the folder of a node, with more lines of configuration. It runs
// from start on.
func newNode(t *testing.T, conf ...string) *node {
	t.Helper()
	dir := t.TempDir()
	name := "gocap-" + newID()[20:]
	n := &node{t: t, dir: dir, port: freePort(t), bin: binaries(t)}
	write(t, filepath.Join(dir, "plugins"), "[].")
	write(t, filepath.Join(dir, "env.conf"), "")
	write(t, filepath.Join(dir, "rabbitmq.conf"), strings.Join(append([]string{
		"listeners.tcp.default = 127.0.0.1:" + n.port,
		"log.console = false",
	}, conf...), "\n")+"\n")
	// For a delivery that nobody answers; there are no lines of rabbitmq.conf for it.
	write(t, filepath.Join(dir, "advanced.config"), "[{rabbit, [{channel_tick_interval, 500}]}].")
	n.env = append(os.Environ(),
		"HOME="+dir, "RABBITMQ_NODENAME="+name+"@localhost", "RABBITMQ_DIST_PORT="+freePort(t),
		"RABBITMQ_MNESIA_BASE="+filepath.Join(dir, "mnesia"), "RABBITMQ_LOG_BASE="+filepath.Join(dir, "log"),
		"RABBITMQ_CONFIG_FILE="+filepath.Join(dir, "rabbitmq"), "RABBITMQ_CONF_ENV_FILE="+filepath.Join(dir, "env.conf"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(dir, "plugins"), "RABBITMQ_PID_FILE="+filepath.Join(dir, "pid"),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_ADVANCED_CONFIG_FILE="+filepath.Join(dir, "advanced.config"),
	)
	t.Cleanup(func() { n.signal(syscall.SIGKILL) })
	return n
}

func (n *node) url() string  { return "amqp://guest:guest@" + n.host() + "/" }
func (n *node) host() string { return "127.0.0.1:" + n.port }

// boot starts the node and does not wait.
func (n *node) boot() {
	n.t.Helper()
	n.cmd = exec.CommandContext(context.WithoutCancel(n.t.Context()), filepath.Join(n.bin, "rabbitmq-server")) //nolint:gosec // a test starts a broker
	n.cmd.Env, n.cmd.Dir = n.env, n.dir
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	log, err := os.OpenFile(filepath.Join(n.dir, "out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		defer close(exited)
		_ = cmd.Wait()
		_ = log.Close()
	}(n.cmd, n.exited)
}

// start returns when the node takes connections.
func (n *node) start() {
	n.t.Helper()
	n.boot()
	n.up()
}

// up waits for an independent client's first success, and says when it was.
func (n *node) up() time.Time {
	n.t.Helper()
	deadline := time.Now().Add(2 * wait)
	for time.Now().Before(deadline) && !n.gone() {
		c, err := amqp091.DialConfig(n.url(), amqp091.Config{Dial: amqp091.DefaultDial(time.Second)})
		if err == nil {
			ch, err := c.Channel()
			if err == nil {
				_, err = ch.QueueDeclare("", false, true, true, false, nil)
			}
			_ = c.CloseDeadline(time.Now().Add(time.Second))
			if err == nil {
				return time.Now()
			}
		}
		pause()
	}
	out, _ := os.ReadFile(filepath.Join(n.dir, "out"))
	n.t.Fatalf("the node did not start: %s", out)
	return time.Time{}
}

func (n *node) gone() bool {
	select {
	case <-n.exited:
		return true
	default:
		return false
	}
}

// signal ends the node and waits until it has gone.
func (n *node) signal(s syscall.Signal) {
	n.t.Helper()
	if n.cmd == nil {
		return
	}
	_ = syscall.Kill(-n.cmd.Process.Pid, s)
	select {
	case <-n.exited:
	case <-time.After(wait):
		n.t.Errorf("the node did not end by signal %v", s)
	}
	n.cmd = nil
}

// ctl runs rabbitmqctl on the node.
func (n *node) ctl(args ...string) string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), wait)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(n.bin, "rabbitmqctl"), append([]string{"-q"}, args...)...) //nolint:gosec // what a test asks of its broker
	cmd.Env = n.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		n.t.Fatalf("rabbitmqctl %v: %v: %s", args, err, out)
	}
	return string(out)
}

// binaries is the folder of the server's own scripts: those in the path of
// Debian change to another user.
func binaries(t *testing.T) string {
	t.Helper()
	const debian = "/usr/lib/rabbitmq/bin"
	if _, err := os.Stat(filepath.Join(debian, "rabbitmq-server")); err == nil {
		return debian
	}
	path, err := exec.LookPath("rabbitmq-server")
	if err != nil {
		t.Fatalf("a test that stops its broker needs the program rabbitmq-server: %v", err)
	}
	return filepath.Dir(path)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

// pause lies between two tries of a thing that may need some.
func pause() { <-time.After(20 * time.Millisecond) }
