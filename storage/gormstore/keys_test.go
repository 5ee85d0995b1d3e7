package gormstore

import (
	"strings"
	"testing"

	"github.com/capbus/gocap/storage"
)

// TestPublishingWithoutKeysNamesNoKey: the statement is the one that it was
// before there were keys.
func TestPublishingWithoutKeysNamesNoKey(t *testing.T) {
	t.Parallel()
	for _, name := range dialects() {
		d, err := newDialect(name, Config{})
		if err != nil {
			t.Fatal(err)
		}
		plain := d.insertOutbox([]*storage.Record{{}, {}})
		keyed := d.insertOutbox([]*storage.Record{{}, {Key: "k"}})
		if strings.Contains(plain.text, "ordering_key") || !strings.Contains(keyed.text, "ordering_key") || len(keyed.args) != len(plain.args)+2 {
			t.Errorf("%s: %s\n%s", name, plain.text, keyed.text)
		}
	}
}
