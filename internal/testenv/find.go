package testenv

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// A program is one of a server's programs, and where it is looked for: in the
// folders first, newest version first, then in PATH.
type program struct {
	name    string
	folders []string // patterns as for filepath.Glob
}

// Binaries returns the folder of the server's first program, or what is missing.
func (k Kind) Binaries() (string, error) {
	var first string
	for i, p := range k.programs {
		path, err := k.find(p.name)
		if err != nil {
			return "", err
		}
		if i == 0 {
			first = filepath.Dir(path)
		}
	}
	return first, nil
}

func (k Kind) find(name string) (string, error) {
	i := slices.IndexFunc(k.programs, func(p program) bool { return p.name == name })
	p := k.programs[i]
	// The folder is that of the first program; others may stand elsewhere
	// (Debian has mariadbd in /usr/sbin and mariadb-install-db in /usr/bin).
	if folder := os.Getenv(k.BinFolder); folder != "" {
		if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return path, nil
		}
		if i == 0 {
			return "", fmt.Errorf("%s: %s is not in %s, which %s names", k.Name, name, folder, k.BinFolder)
		}
	}
	for _, pattern := range p.folders {
		folders, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		slices.SortFunc(folders, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
		for _, folder := range folders {
			if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
				return path, nil
			}
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	return "", fmt.Errorf("%s: the program %s is missing (looked for in PATH and %v; %s can name its folder)",
		k.Name, name, p.folders, k.BinFolder)
}

// version is the first number in a path.
func version(path string) int {
	start := -1
	for i, c := range path {
		digit := c >= '0' && c <= '9'
		if digit && start < 0 {
			start = i
		}
		if !digit && start >= 0 {
			path = path[:i]
			break
		}
	}
	if start < 0 {
		return 0
	}
	n, err := strconv.Atoi(path[start:])
	if err != nil {
		return 0
	}
	return n
}
