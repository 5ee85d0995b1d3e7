package archtest

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A source is one Go file: its folder below the module root ("." is the root),
// its name, and the paths it imports.
type source struct {
	pkg, file string
	imports   []string
}

func (s source) isTest() bool { return strings.HasSuffix(s.file, "_test.go") }

// check returns what the table does not allow, one line each. mods are the
// modules of others that the sources import from.
func check(tbl []row, mods []string, sources []source) []string {
	var bad []string
	for _, s := range sources {
		r, ok := rowOf(tbl, s.pkg)
		if !ok {
			bad = append(bad, fmt.Sprintf("%s: the table has no row for package %s", path.Join(s.pkg, s.file), display(s.pkg)))
			continue
		}
		for _, imp := range s.imports {
			if problem := r.refuses(tbl, mods, s, imp); problem != "" {
				bad = append(bad, fmt.Sprintf("%s: %s", path.Join(s.pkg, s.file), problem))
			}
		}
	}
	return bad
}

// refuses says why the row does not let the file import imp, or nothing.
func (r row) refuses(tbl []row, mods []string, s source, imp string) string {
	who := display(s.pkg)
	if s.isTest() {
		who = "a test of " + who
	}
	target, isOurs := folder(imp)
	switch {
	case isStandard(imp), isOurs && target == s.pkg:
		return ""
	case isOurs:
		allowed := r.allowedOurs(s)
		t, known := rowOf(tbl, target)
		if known && (slices.Contains(allowed, t.pkg) || slices.Contains(allowed, "*")) {
			return ""
		}
		return fmt.Sprintf("%s may not import %s; of ours it may import: %s", who, display(target), list(allowed))
	default:
		allowed := r.allowedMods(s)
		mod := moduleOf(mods, imp)
		if slices.Contains(allowed, mod) || slices.Contains(allowed, "*") {
			return ""
		}
		return fmt.Sprintf("%s may not import %s of module %s; of others it may import: %s", who, imp, mod, list(allowed))
	}
}

func (r row) allowedOurs(s source) []string {
	if s.isTest() {
		return slices.Concat(r.ours, r.testOurs)
	}
	return r.ours
}

func (r row) allowedMods(s source) []string {
	mods := slices.Clone(r.mods)
	if s.isTest() {
		mods = slices.Concat(mods, r.testMods, testOnly())
	}
	for _, f := range r.files {
		if slices.ContainsFunc(f.names, func(pattern string) bool {
			ok, err := path.Match(pattern, s.file)
			return ok && err == nil
		}) {
			mods = append(mods, f.mods...)
		}
	}
	return mods
}

// rowOf returns the row of a package: the one with its name, else the pattern
// with the longest folder above it.
func rowOf(tbl []row, pkg string) (row, bool) {
	var best row
	for _, r := range tbl {
		if r.pkg == pkg {
			return r, true
		}
		above, isPattern := strings.CutSuffix(r.pkg, "*")
		if isPattern && strings.HasPrefix(pkg+"/", above) && len(r.pkg) > len(best.pkg) {
			best = r
		}
	}
	return best, best.pkg != ""
}

// folder returns the folder of a package of this module.
func folder(imp string) (string, bool) {
	if imp == module {
		return ".", true
	}
	return strings.CutPrefix(imp, module+"/")
}

// isStandard reports whether a path is of the standard library: only there the
// first element has no dot.
func isStandard(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

// moduleOf returns the module that has the package: the longest path above it,
// or the import path when no module is known (a file that only other systems
// build may import one that go list does not show here).
func moduleOf(mods []string, imp string) string {
	best := ""
	for _, m := range mods {
		if (imp == m || strings.HasPrefix(imp, m+"/")) && len(m) > len(best) {
			best = m
		}
	}
	if best == "" {
		return imp
	}
	return best
}

// display is the name of a package in a report.
func display(pkg string) string {
	if pkg == "." {
		return "the root"
	}
	return pkg
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	shown := make([]string, len(names))
	for i, name := range names {
		shown[i] = display(name)
	}
	return strings.Join(shown, ", ")
}
