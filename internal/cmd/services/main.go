// Command services makes the servers ready that tests need, runs a command with
// their addresses in its environment, and stops what it has started:
//
//	services go test ./...
//
// It takes, for each server, the first of these that works:
//
//   - the address in the server's environment variable, and nothing else if that
//     is set;
//   - the usual address on this machine, if a server answers there and gives us
//     the rights that tests need;
//   - a server of our own of the installed programs, on a free port, with its data
//     in a temporary folder. A server that is installed but stopped, or does not
//     let us in, is left as it is;
//   - a container of docker compose;
//   - on Debian as root: what apt-get installs, then as above.
//
// If nothing works for a server, it says so and runs nothing. With
// GOCAP_KEEP_SERVICES=1 it leaves running what it has started, and says how to use
// and how to stop that.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() { os.Exit(run()) }

func run() int {
	if len(os.Args) < 2 {
		say("no command is given")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := runWith(ctx, thisMachine(), os.Args[1:])
	if err != nil {
		say("%v", err)
		return 1
	}
	return code
}

func runWith(ctx context.Context, m machine, command []string) (code int, err error) {
	r := &readier{machine: m}
	defer func() { err = errors.Join(err, r.close()) }()
	env, err := r.ready(ctx)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // what the caller asked for
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil // -1 if a signal has ended it
	} else if err != nil {
		return 0, err
	}
	return 0, nil
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "test.sh: "+format+"\n", args...)
}
