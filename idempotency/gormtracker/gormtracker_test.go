package gormtracker_test

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capbus/gocap/idempotency/gormtracker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSchemaIsQuotedAndHasPrefixAndSchema(t *testing.T) {
	t.Parallel()
	cfg := gormtracker.Config{TablePrefix: "Shop_", Schema: "my shop"}
	for dialect, want := range map[string]string{
		"postgres": `CREATE TABLE IF NOT EXISTS "my shop"."Shop_processed"`,
		"mysql":    "CREATE TABLE IF NOT EXISTS `my shop`.`Shop_processed`",
	} {
		text, err := gormtracker.Schema(dialect, cfg)
		if err != nil || !strings.Contains(text, want) || !strings.HasSuffix(text, ";\n") || strings.Contains(text, "{") {
			t.Errorf("%s: %v\n%s", dialect, err, text)
		}
	}
	for dialect, want := range map[string]string{
		"postgres": `"cap_processed"`, "sqlite": `"cap_processed"`, "mysql": "`cap_processed`",
	} {
		if text, err := gormtracker.Schema(dialect, gormtracker.Config{}); err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v\n%s", dialect, err, text)
		}
	}
}

func TestBadSettingsAreReported(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64)
	for want, cfg := range map[string]gormtracker.Config{
		"TablePrefix has 33 bytes":              {TablePrefix: long[:33]},
		`TablePrefix "1a" is not an identifier`: {TablePrefix: "1a"},
		`TablePrefix "a-" is not an identifier`: {TablePrefix: "a-"},
		`TablePrefix "ä" is not an identifier`:  {TablePrefix: "ä"},
		"Schema has 64 bytes":                   {Schema: long},
		`Schema "a\"b" has a quote`:             {Schema: `a"b`},
		"Schema \"a`b\" has a quote":            {Schema: "a`b"},
		`Schema " a" has a quote`:               {Schema: " a"},
		`Schema "a\x00" has a quote`:            {Schema: "a\x00"},
		`Schema "\xff" has a quote`:             {Schema: "\xff"},
		"Retention is negative":                 {Retention: -time.Second},
	} {
		_, err := gormtracker.Schema("postgres", cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %s", err, want)
		}
		if err := gormtracker.New(nil, cfg).Validate(); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "the *gorm.DB is nil") {
			t.Errorf("New does not report all: %v", err)
		}
	}
	if _, err := gormtracker.Schema("oracle", gormtracker.Config{}); err == nil || !strings.Contains(err.Error(), `no dialect "oracle"`) {
		t.Errorf("error %v", err)
	}
	if _, err := gormtracker.Schema("sqlite", gormtracker.Config{Schema: "a"}); err == nil || !strings.Contains(err.Error(), "no schemas") {
		t.Errorf("error %v", err)
	}
}
