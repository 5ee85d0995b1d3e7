package storage_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/capbus/gocap/storage"
)

func TestCleanError(t *testing.T) {
	t.Parallel()
	most := storage.MaxErrorBytes
	for name, c := range map[string]struct{ in, want string }{
		"empty":               {"", ""},
		"plain":               {"no answer", "no answer"},
		"other scripts":       {"нет ответа 🎉", "нет ответа 🎉"},
		"NUL":                 {"a\x00b\x00", "a\uFFFDb\uFFFD"},
		"invalid UTF-8":       {"a\xffb\xc3", "a\uFFFDb\uFFFD"},
		"as long as it may":   {strings.Repeat("x", most), strings.Repeat("x", most)},
		"too long":            {strings.Repeat("x", most+1), strings.Repeat("x", most)},
		"cut before a rune":   {strings.Repeat("x", most-1) + "é", strings.Repeat("x", most-1)},
		"cut behind a rune":   {strings.Repeat("x", most-2) + "éé", strings.Repeat("x", most-2) + "é"},
		"grows when replaced": {strings.Repeat("\x00", most), strings.Repeat("\uFFFD", most/3)},
		"lines and tabs stay": {"line one\n\tline two\r\n", "line one\n\tline two\r\n"},
	} {
		if got := storage.CleanError(c.in); got != c.want {
			t.Errorf("%s: got %d bytes %.40q, want %d bytes %.40q", name, len(got), got, len(c.want), c.want)
		}
	}
}

func FuzzCleanError(f *testing.F) {
	f.Add("no answer", uint16(1))
	f.Add("a\x00b\xff", uint16(2000))
	f.Add("é", uint16(4000))
	f.Add("🎉x", uint16(1500))
	f.Fuzz(func(t *testing.T, s string, times uint16) {
		if int(times)*len(s) < 1<<14 {
			s = strings.Repeat(s, int(times))
		}
		got := storage.CleanError(s)
		switch {
		case !utf8.ValidString(got):
			t.Errorf("not valid UTF-8: %.40q", got)
		case strings.ContainsRune(got, 0):
			t.Errorf("NUL in %.40q", got)
		case len(got) > storage.MaxErrorBytes:
			t.Errorf("%d bytes", len(got))
		case storage.CleanError(got) != got:
			t.Errorf("cleaned twice it is another: %.40q", got)
		case len(s) <= storage.MaxErrorBytes && utf8.ValidString(s) && !strings.ContainsRune(s, 0) && got != s:
			t.Errorf("a clean text was changed: %.40q", got)
		case len(s) > storage.MaxErrorBytes && len(got) <= storage.MaxErrorBytes-utf8.UTFMax && utf8.ValidString(s):
			t.Errorf("cut to %d bytes of %d, more would fit", len(got), len(s))
		}
	})
}
