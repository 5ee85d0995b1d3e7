package storage

import (
	"strings"
	"unicode/utf8"
)

// MaxErrorBytes is the longest error text that is stored.
const MaxErrorBytes = 4096

// CleanError makes an error text fit for every database: valid UTF-8 without
// NUL, at most MaxErrorBytes, cut at a rune.
func CleanError(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= MaxErrorBytes {
		return s
	}
	cut := MaxErrorBytes
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}
