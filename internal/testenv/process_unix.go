//go:build unix

package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ownGroup puts a command into a process group of its own. If we are root, the
// command runs as the user, or as nobody if there is no such user: PostgreSQL and
// PgBouncer do not run as root.
func ownGroup(cmd *exec.Cmd, name string) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if name == "" || os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := ids(name)
	if err != nil {
		return err
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	return nil
}

func ids(name string) (uid, gid uint32, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return 0, 0, fmt.Errorf("testenv: neither the user %s nor nobody is there: %w", name, err)
	}
	wideUID, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return 0, 0, err
	}
	wideGID, err := strconv.ParseUint(u.Gid, 10, 32)
	return uint32(wideUID), uint32(wideGID), err
}

// handOver gives a folder and what is in it to the user, and lets him come to it
// through the folders above that are ours: temporary folders are closed to others.
func handOver(dir, name string) error {
	if name == "" || os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := ids(name)
	if err != nil {
		return err
	}
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(uid), int(gid)) //nolint:gosec // nobody else writes there yet
	})
	if err != nil {
		return err
	}
	temp := filepath.Clean(os.TempDir())
	for above := filepath.Dir(dir); strings.HasPrefix(above, temp+string(filepath.Separator)); above = filepath.Dir(above) {
		info, err := os.Stat(above)
		if err != nil {
			return err
		}
		if err := os.Chmod(above, info.Mode().Perm()|0o111); err != nil {
			return err
		}
	}
	return nil
}

func signalGroup(pid int, s syscall.Signal) {
	// The group may be gone already.
	_ = syscall.Kill(-pid, s)
	_ = syscall.Kill(pid, s)
}

// childrenOf lists the processes that a process has started, as far as ps is
// there to ask.
func childrenOf(pid int) []int {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil
	}
	var children []int
	for line := range strings.Lines(string(out)) {
		var child, parent int
		if n, _ := fmt.Sscan(line, &child, &parent); n == 2 && parent == pid {
			children = append(children, child)
		}
	}
	return children
}

func pauseGroup(pid int) { signalGroup(pid, syscall.SIGSTOP) }
