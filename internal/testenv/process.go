package testenv

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A process is a server that runs from installed binaries, in the foreground and
// in a process group of its own: a Ctrl-C in the terminal is for the tests, which
// then stop their servers.
type process struct {
	dir   string
	args  []string
	env   []string
	end   syscall.Signal // asks it to end
	user  string         // it runs as, where we are root
	grace time.Duration
	watch bool
	also  *process // runs beside it, as epmd beside RabbitMQ

	cmd    *exec.Cmd
	exited chan struct{}
	guard  io.Closer // open as long as we live
}

func (p *process) start() error {
	if err := p.dropGuard(); err != nil {
		return err
	}
	if p.also != nil && p.also.dead() {
		if err := p.also.start(); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(filepath.Clean(p.logFile()), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(p.args[0], p.args[1:]...) //nolint:gosec // a server program that was looked for
	cmd.Dir, cmd.Env = p.dir, p.env
	cmd.Stdout, cmd.Stderr = log, log
	if err := ownGroup(cmd, p.user); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how a server ends is told by its log
	}()
	p.cmd, p.exited = cmd, exited
	if p.watch {
		return p.startGuard()
	}
	return nil
}

// startGuard runs a shell that ends the server when we are gone: then its
// standard input ends. A test that panics or times out runs no cleanup.
func (p *process) startGuard() error {
	group := fmt.Sprintf("-%d", p.cmd.Process.Pid)
	//nolint:gosec // two numbers
	guard := exec.Command("sh", "-c", `cat >/dev/null; kill "$1" "$0"; sleep 5; kill -9 "$0"`,
		group, fmt.Sprintf("-%d", int(p.end)))
	if err := ownGroup(guard, ""); err != nil {
		return err
	}
	in, err := guard.StdinPipe()
	if err != nil {
		return err
	}
	if err := guard.Start(); err != nil {
		return err
	}
	p.guard = guardian{guard, in}
	return nil
}

// A guardian is closed once its server has ended.
type guardian struct {
	cmd *exec.Cmd
	in  io.Closer
}

func (g guardian) Close() error {
	signalGroup(g.cmd.Process.Pid, syscall.SIGKILL) // before it sees the end of its input
	_ = g.cmd.Wait()                                // says that it was killed
	_ = g.in.Close()                                // Wait has closed it
	return nil
}

func (p *process) stop() error {
	if !p.dead() {
		if err := p.cmd.Process.Signal(p.end); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		select {
		case <-p.exited:
		case <-time.After(p.grace):
		}
	}
	return p.kill()
}

// kill also ends what the server has started. A process of PostgreSQL is the
// leader of a group of its own, and would otherwise finish its statement.
func (p *process) kill() error {
	if p.cmd == nil {
		return nil
	}
	pid := p.cmd.Process.Pid
	if !p.dead() {
		pauseGroup(pid) // so that it starts nothing new
		children := childrenOf(pid)
		signalGroup(pid, syscall.SIGKILL)
		for _, child := range children {
			signalGroup(child, syscall.SIGKILL)
		}
	}
	<-p.exited
	return p.dropGuard()
}

func (p *process) dropGuard() error {
	if p.guard == nil {
		return nil
	}
	guard := p.guard
	p.guard = nil
	return guard.Close()
}

func (p *process) remove() error {
	err := p.kill()
	if p.also != nil {
		err = errors.Join(err, p.also.remove())
	}
	return err
}

func (p *process) dead() bool {
	if p.cmd == nil {
		return true
	}
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *process) logFile() string { return filepath.Join(p.dir, filepath.Base(p.args[0])+".log") }

func (p *process) log() string { return lastLines(p.logFile()) }

func (p *process) hint() string {
	if p.cmd == nil {
		return ""
	}
	hint := fmt.Sprintf("kill -%d %d", int(p.end), p.cmd.Process.Pid)
	if p.also != nil {
		hint += "; " + p.also.hint()
	}
	return hint
}

// prepare makes the folder usable for the user that the server runs as, and runs
// a command there, with his rights.
func prepare(dir, user string, args ...string) error {
	if err := handOver(dir, user); err != nil {
		return err
	}
	if len(args) == 0 {
		return nil
	}
	cmd := exec.Command(args[0], args[1:]...) //nolint:gosec // a server program that was looked for
	cmd.Dir, cmd.Env = dir, environment(dir)
	if err := ownGroup(cmd, user); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testenv: %s: %w\n%s", filepath.Base(args[0]), err, out)
	}
	return nil
}

// environment is that of a server: ours, without what sets up some other server.
func environment(home string, more ...string) []string {
	env := []string{"HOME=" + home}
	for _, e := range os.Environ() {
		foreign := strings.HasPrefix(e, "PG") || strings.HasPrefix(e, "RABBITMQ_") || strings.HasPrefix(e, "ERL_") ||
			strings.HasPrefix(e, "MYSQL_") || strings.HasPrefix(e, "HOME=") || strings.HasPrefix(e, "NOTIFY_SOCKET=")
		if !foreign {
			env = append(env, e)
		}
	}
	return append(env, more...)
}
