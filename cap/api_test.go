package cap_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

//nolint:gochecknoglobals // a flag of go test
var update = flag.Bool("update", false, "write testdata/api.txt anew")

// maxNames bounds the exported names of the package; methods and fields are not
// counted.
const maxNames = 40

// exported returns the documented API of the package, without comments, and its
// top-level names.
func exported(t *testing.T) (api string, names []string) {
	t.Helper()
	fset := token.NewFileSet()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, 0) // without comments
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, "github.com/capbus/gocap/cap")
	if err != nil {
		t.Fatal(err)
	}
	var decls []string
	add := func(decl ast.Node) {
		if f, ok := decl.(*ast.FuncDecl); ok {
			f.Body = nil
		}
		var text bytes.Buffer
		if err := printer.Fprint(&text, fset, decl); err != nil {
			t.Fatal(err)
		}
		decls = append(decls, text.String())
	}
	values := func(vs []*doc.Value) {
		for _, v := range vs {
			names = append(names, v.Names...)
			for _, spec := range v.Decl.Specs {
				if s, ok := spec.(*ast.ValueSpec); ok {
					s.Values = nil // an error's text may change
				}
			}
			add(v.Decl)
		}
	}
	funcs := func(fs []*doc.Func) {
		for _, f := range fs {
			if f.Recv == "" {
				names = append(names, f.Name)
			}
			add(f.Decl)
		}
	}
	values(p.Consts)
	values(p.Vars)
	funcs(p.Funcs)
	for _, typ := range p.Types {
		names = append(names, typ.Name)
		add(typ.Decl)
		values(typ.Consts)
		values(typ.Vars)
		funcs(typ.Funcs)
		funcs(typ.Methods)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !ast.IsExported(name) })
	slices.Sort(names)
	blank := regexp.MustCompile(`\n\s*\n`) // where comments were
	return blank.ReplaceAllString(strings.Join(decls, "\n\n"), "\n") + "\n", slices.Compact(names)
}

// A change of the exported API shows in a review: testdata/api.txt changes with
// it.
func TestTheAPIIsTheReviewedOne(t *testing.T) {
	t.Parallel()
	api, names := exported(t)
	if len(names) > maxNames {
		t.Errorf("%d exported names, at most %d are allowed: %v", len(names), maxNames, names)
	}
	golden := filepath.Join("testdata", "api.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(api), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden) //nolint:gosec // a fixed name
	if err != nil {
		t.Fatal(err)
	}
	if api != string(want) {
		t.Errorf("the exported API has changed; if that is wanted, run: go test ./cap -run TheAPI -update\n--- is\n%s", api)
	}
}
