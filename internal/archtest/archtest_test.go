package archtest

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestImportsFollowTheTable(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	sources := readSources(t, root)
	for _, problem := range check(table(), modules(goList(t, root)), sources) {
		t.Error(problem)
	}
	if t.Failed() {
		t.Log("the table stands in internal/archtest/table_test.go; a new arrow needs a reason, a new package a row")
	}
}

func TestBarePackagesReachNoOtherModule(t *testing.T) {
	t.Parallel()
	listed := goList(t, moduleRoot(t))
	byPath := make(map[string]listedPackage, len(listed))
	for _, p := range listed {
		byPath[p.ImportPath] = p
	}
	reported := make(map[string]bool)
	for _, p := range listed {
		pkg, isOurs := folder(p.tested())
		r, known := rowOf(table(), pkg)
		if !isOurs || !known || !slices.Contains(bare(), r.pkg) {
			continue
		}
		for _, dep := range p.Deps {
			m := byPath[dep].module()
			if m == "" || m == module || slices.Contains(testOnly(), m) || reported[pkg+m] {
				continue
			}
			reported[pkg+m] = true
			t.Errorf("%s, or a test of it, reaches %s of module %s", display(pkg), dep, m)
		}
	}
}

// moduleRoot is the folder with our go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// readSources reads the imports of every Go file of the module, whatever its
// build constraints: go list alone would not see a file for another system or
// with another tag. It also makes `go test` notice, when it looks for a cached
// result, that a file or folder came or went.
func readSources(t *testing.T, root string) []source {
	t.Helper()
	var sources []source
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipForeign(name, rel)
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		imports, err := importsOf(name)
		sources = append(sources, source{
			pkg:     filepath.ToSlash(filepath.Dir(rel)),
			file:    filepath.Base(rel),
			imports: imports,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// skipForeign skips the folders that the go command does not count to the module.
func skipForeign(name, rel string) error {
	base := filepath.Base(rel)
	if rel == "." {
		return nil
	}
	if base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func importsOf(name string) ([]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var imports []string
	for _, spec := range f.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		imports = append(imports, imp)
	}
	return imports, nil
}

// A listedPackage is what we read of one entry of go list.
type listedPackage struct {
	ImportPath string
	ForTest    string
	Module     *struct{ Path string }
	Deps       []string
}

// tested is the path of the package itself, for its test variants too.
func (p listedPackage) tested() string {
	if p.ForTest != "" {
		return p.ForTest
	}
	return strings.TrimSuffix(p.ImportPath, ".test")
}

// module is the path of the module, or nothing for the standard library.
func (p listedPackage) module() string {
	if p.Module == nil {
		return ""
	}
	return p.Module.Path
}

// goList lists the packages of the module, their tests, and all they import.
// With -e a package that does not compile is judged all the same.
func goList(t *testing.T, root string) []listedPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-test",
		"-json=ImportPath,ForTest,Module,Deps", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var listed []listedPackage
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return listed
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		listed = append(listed, p)
	}
}

// modules returns the modules of others in a list.
func modules(listed []listedPackage) []string {
	var mods []string
	for _, p := range listed {
		if m := p.module(); m != "" && m != module && !slices.Contains(mods, m) {
			mods = append(mods, m)
		}
	}
	return mods
}
