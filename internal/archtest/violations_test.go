package archtest

import (
	"strings"
	"testing"
)

func TestViolationsAreReported(t *testing.T) {
	t.Parallel()
	mods := []string{modFx, modGoleak, modGorm, modSQLite, modModern}
	tests := map[string]struct {
		pkg, file, imp string
		want           []string // parts of the one report
	}{
		"contract to contract": {
			"storage", "record.go", module + "/transport",
			[]string{"storage/record.go", "storage may not import transport", "nothing"},
		},
		"contract to mechanics": {
			"transport", "message.go", module + "/internal/ids",
			[]string{"transport/message.go", "transport may not import internal/ids"},
		},
		"contract to the root": {
			"storage", "record.go", module,
			[]string{"storage may not import the root"},
		},
		"contract to a module of others": {
			"storage", "record.go", "gorm.io/gorm/clause",
			[]string{"storage may not import gorm.io/gorm/clause of module gorm.io/gorm"},
		},
		"test of a contract to a driver": {
			"storage", "record_test.go", modSQLite,
			[]string{"storage/record_test.go", "a test of storage may not import " + modSQLite, modGoleak},
		},
		"goleak outside tests": {
			"processor", "dispatcher.go", modGoleak,
			[]string{"processor may not import " + modGoleak},
		},
		"engine to engine": {
			"processor", "dispatcher.go", module + "/subscribe",
			[]string{"processor/dispatcher.go", "processor may not import subscribe"},
		},
		"test of an engine to the other engine": {
			"subscribe", "consume_test.go", module + "/processor",
			[]string{"a test of subscribe may not import processor"},
		},
		"engine to an adapter": {
			"processor", "dispatcher.go", module + "/storage/memstore",
			[]string{"processor may not import storage/memstore"},
		},
		"test of an engine to a database": {
			"processor", "dispatcher_test.go", module + "/storage/sqlite",
			[]string{"a test of processor may not import storage/sqlite"},
		},
		"engine to the facade": {
			"subscribe", "consume.go", module + "/cap",
			[]string{"subscribe may not import cap"},
		},
		"facade to fx outside fx.go": {
			"cap", "bus.go", modFx,
			[]string{"cap/bus.go", "cap may not import go.uber.org/fx of module go.uber.org/fx", "nothing"},
		},
		"test of the facade to fx outside the tests of fx.go": {
			"cap", "bus_test.go", modFx + "/fxtest",
			[]string{"cap/bus_test.go", "a test of cap may not import go.uber.org/fx/fxtest"},
		},
		"facade to an adapter": {
			"cap", "bus.go", module + "/storage/sqlite",
			[]string{"cap may not import storage/sqlite"},
		},
		"mechanics to a contract": {
			"internal/lifecycle", "lifecycle.go", module + "/storage",
			[]string{"internal/lifecycle may not import storage"},
		},
		"adapter to an adapter": {
			"transport/memqueue", "memqueue.go", module + "/storage/memstore",
			[]string{"transport/memqueue may not import storage/memstore"},
		},
		"adapter to the other contract by way of the mechanics": {
			"transport/memqueue", "memqueue.go", module + "/internal/rows",
			[]string{"transport/memqueue may not import internal/rows"},
		},
		"adapter to the suite outside tests": {
			"storage/memstore", "memstore.go", module + "/storage/storagetest",
			[]string{"storage/memstore may not import storage/storagetest"},
		},
		"adapter to a driver": {
			"storage/gormstore", "sqlite.go", modModern,
			[]string{"storage/gormstore may not import " + modModern, modGorm},
		},
		"library to an example": {
			"cap", "bus.go", module + "/examples/quickstart",
			[]string{"cap may not import examples/quickstart"},
		},
		"package without a row": {
			"util", "util.go", "fmt",
			[]string{"util/util.go", "no row for package util"},
		},
		"package below one with a row": {
			"storage/oracle", "oracle.go", "fmt",
			[]string{"no row for package storage/oracle"},
		},
		"import of a package without a row": {
			"cap", "bus.go", module + "/util",
			[]string{"cap may not import util"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := check(table(), mods, []source{{pkg: tt.pkg, file: tt.file, imports: []string{"context", tt.imp}}})
			if len(got) != 1 {
				t.Fatalf("reports = %q, want one", got)
			}
			for _, part := range tt.want {
				if !strings.Contains(got[0], part) {
					t.Errorf("report = %q, want it to contain %q", got[0], part)
				}
			}
		})
	}
}

func TestAllowedImportsAreNotReported(t *testing.T) {
	t.Parallel()
	sources := []source{
		{pkg: "storage", file: "storage_test.go", imports: []string{"testing", module + "/storage", modGoleak}},
		{pkg: "processor", file: "dispatcher.go", imports: []string{module + "/storage", module + "/internal/rows"}},
		{pkg: "processor", file: "dispatcher_test.go", imports: []string{module + "/transport/memqueue"}},
		{pkg: "cap", file: "fx.go", imports: []string{module, modFx}},
		{pkg: "cap", file: "fx_test.go", imports: []string{modFx + "/fxtest"}},
		{pkg: "cap", file: "example_fx_test.go", imports: []string{modFx}},
		{pkg: "cap", file: "tx_test.go", imports: []string{module + "/storage/memstore", module + "/transport/memqueue"}},
		{pkg: "storage/gormstore", file: "gormstore.go", imports: []string{"gorm.io/gorm/clause", module + "/internal/ids"}},
		{pkg: "storage/sqlite", file: "sqlite_test.go", imports: []string{module + "/storage/storagetest"}},
		{pkg: "examples/quickstart", file: "main.go", imports: []string{module + "/cap", modGorm}},
	}
	mods := []string{modFx, modGoleak, modGorm, modSQLite, modModern}
	for _, problem := range check(table(), mods, sources) {
		t.Error(problem)
	}
}

func TestLongestModulePathOwnsThePackage(t *testing.T) {
	t.Parallel()
	mods := []string{"example.org/a", "example.org/a/v2"}
	for imp, want := range map[string]string{
		"example.org/a":      "example.org/a",
		"example.org/a/b":    "example.org/a",
		"example.org/a/v2/b": "example.org/a/v2",
		"example.org/ab":     "example.org/ab",
	} {
		if got := moduleOf(mods, imp); got != want {
			t.Errorf("moduleOf(%q) = %q, want %q", imp, got, want)
		}
	}
}
