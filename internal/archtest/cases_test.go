package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A faultCase is a row of the table in docs/cases.md.
type faultCase struct {
	id     string
	tests  []string // as package.Name
	result string
}

// TestEveryCaseNamesItsTests holds docs/cases.md to the tests: those that it
// names are there, those that are made for a case are in its row, and a case
// without a test is said to be open.
func TestEveryCaseNamesItsTests(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	text, err := fs.ReadFile(os.DirFS(root), "docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range checkCases(faultCases(string(text)), testNames(t, root)) {
		t.Error(problem)
	}
}

func TestWrongCasesAreReported(t *testing.T) {
	t.Parallel()
	const head = "# Fault cases\n\n| case | kind | tests | result |\n|---|---|---|---|\n"
	there := map[string]bool{"cap.TestC001A": true, "transport/x.TestB": true}
	for _, c := range []struct{ rows, problem string }{
		{"| C001 | k | `cap.TestC001A`, `transport/x.TestB` | holds |\n", ""},
		{"| C001 | k | `cap.TestC001A`, `cap.TestB` | holds |\n", "C001 names cap.TestB, which is not there"},
		{"| C001 | k | `transport/x.TestB` | holds |\n", "cap.TestC001A is not in the row of C001"},
		{"| C001 | k | `cap.TestC001A` | holds |\n| C002 | k | – | holds |\n", "C002 has no test and is not said to be open"},
		{"| C001 | k | `cap.TestC001A` | holds |\n| C002 | k | – | open: not built |\n", ""},
		{"| C001 | k | `cap.TestC001A` |  |\n", "C001 has no result"},
		{"| C002 | k | – | open: not built |\n| C001 | k | `cap.TestC001A` | holds |\n", "C001 is there twice, or out of order"},
		{"", "there are no cases"},
	} {
		got := checkCases(faultCases(head+c.rows), there)
		if c.problem == "" && len(got) > 0 || c.problem != "" && !slices.Contains(got, c.problem) {
			t.Errorf("%q: reported %q, want %q", c.rows, got, c.problem)
		}
	}
}

// faultCases reads the table.
func faultCases(text string) []faultCase {
	id, name := regexp.MustCompile(`^C\d{3}$`), regexp.MustCompile("`([^`]+)`")
	var list []faultCase
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || !id.MatchString(strings.TrimSpace(cells[0])) {
			continue
		}
		c := faultCase{id: strings.TrimSpace(cells[0]), result: strings.TrimSpace(cells[3])}
		for _, m := range name.FindAllStringSubmatch(cells[2], -1) {
			c.tests = append(c.tests, m[1])
		}
		list = append(list, c)
	}
	return list
}

// checkCases compares the table with the tests that there are.
func checkCases(list []faultCase, there map[string]bool) (problems []string) {
	if len(list) == 0 {
		return []string{"there are no cases"}
	}
	named := map[string]bool{}
	for i, c := range list {
		if i > 0 && c.id <= list[i-1].id {
			problems = append(problems, c.id+" is there twice, or out of order")
		}
		for _, name := range c.tests {
			named[c.id+" "+name] = true
			if !there[name] {
				problems = append(problems, c.id+" names "+name+", which is not there")
			}
		}
		switch {
		case c.result == "":
			problems = append(problems, c.id+" has no result")
		case len(c.tests) == 0 && !strings.HasPrefix(c.result, "open: "):
			problems = append(problems, c.id+" has no test and is not said to be open")
		}
	}
	made := regexp.MustCompile(`\.Test(C\d{3})`)
	for name := range there {
		if m := made.FindStringSubmatch(name); m != nil && !named[m[1]+" "+name] {
			problems = append(problems, name+" is not in the row of "+m[1])
		}
	}
	slices.Sort(problems)
	return problems
}

// testNames finds the tests of the module, as package.Name; those of the root are
// gocap.Name.
func testNames(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return skipForeign(name, rel)
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(rel))
		if pkg == "." {
			pkg = "gocap"
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names[pkg+"."+f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
