//go:build !unix

package testenv

import (
	"os"
	"os/exec"
	"syscall"
)

func ownGroup(*exec.Cmd, string) error { return nil }

func handOver(string, string) error { return nil }

func signalGroup(pid int, s syscall.Signal) {
	if s != syscall.SIGKILL {
		return
	}
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // may be gone already
	}
}

func childrenOf(int) []int { return nil }

func pauseGroup(int) {}
