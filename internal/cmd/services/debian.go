package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// installDebian installs packages without starting their servers: tests run their
// own, and what apt-get starts would stay.
func installDebian(ctx context.Context, packages []string) (err error) {
	if _, err := os.Stat("/etc/debian_version"); err != nil {
		return errors.New("this is not Debian, nor made from it")
	}
	if os.Geteuid() != 0 {
		return errors.New("only root may install them")
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return err
	}
	say("installing %s", strings.Join(packages, ", "))
	allow, err := denyStarts("/usr/sbin/policy-rc.d")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, allow()) }()
	for _, args := range [][]string{
		{"update", "-qq"},
		append([]string{"install", "-y", "-qq", "--no-install-recommends"}, packages...),
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...) //nolint:gosec // names of our own
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, out)
		}
	}
	return nil
}

// denyStarts puts the script in place that Debian asks before it starts a
// server, unless there is one, and returns how to take it away.
func denyStarts(path string) (allow func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) //nolint:gosec // it is run
	if errors.Is(err, os.ErrExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	allow = func() error { return os.Remove(path) }
	if _, err = f.WriteString("#!/bin/sh\nexit 101\n"); err != nil {
		return nil, errors.Join(err, f.Close(), allow())
	}
	if err := f.Close(); err != nil {
		return nil, errors.Join(err, allow())
	}
	return allow, nil
}
