package gormstore_test

import (
	"strings"
	"testing"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

func TestTablePrefixIsAnIdentifier(t *testing.T) {
	t.Parallel()
	for prefix, good := range map[string]bool{
		"":                      true,
		"cap_":                  true,
		"_":                     true,
		"Shop2_":                true,
		strings.Repeat("x", 32): true,
		strings.Repeat("x", 33): false,
		"1cap":                  false,
		"cap-":                  false,
		`cap"`:                  false,
		"cap.":                  false,
		"cap ":                  false,
		"cäp":                   false,
		"cap\x00":               false,
	} {
		err := gormstore.Config{TablePrefix: prefix}.Validate()
		if (err == nil) != good {
			t.Errorf("prefix %q: %v", prefix, err)
		}
		if err != nil && !strings.Contains(err.Error(), "Config.TablePrefix") {
			t.Errorf("prefix %q: %v does not name the field", prefix, err)
		}
	}
}

func FuzzTablePrefix(f *testing.F) {
	f.Add("cap_")
	f.Fuzz(func(t *testing.T, prefix string) {
		if (gormstore.Config{TablePrefix: prefix}).Validate() == nil && strings.ContainsAny(prefix, "\"`'[];-. \x00") {
			t.Errorf("%q is accepted", prefix)
		}
	})
}

func TestEveryBadValueIsReported(t *testing.T) {
	t.Parallel()
	cfg := gormstore.Config{TablePrefix: "-", Binders: []storage.TxBinder{nil}}
	for name, err := range map[string]error{"config": cfg.Validate(), "store": gormstore.New(nil, cfg).Validate()} {
		for _, part := range []string{"TablePrefix", "Binders[0]"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v does not name %s", name, err, part)
			}
		}
	}
}

func TestAPoolWithoutADialectIsRefused(t *testing.T) {
	t.Parallel()
	db := &gorm.DB{Config: &gorm.Config{}}
	db.Statement = &gorm.Statement{DB: db}
	if err := gormstore.New(db, gormstore.Config{}).Validate(); err == nil || !strings.Contains(strings.ToLower(err.Error()), "dialect") {
		t.Error(err)
	}
}
