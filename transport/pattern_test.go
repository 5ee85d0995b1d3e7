package transport_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap/transport"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pattern    string
		yes, never string // topics, separated by blanks
	}{
		{"*.key", "x.key .key *.key", "a.key.key key x.key. .x.key x.keys"},
		{"a.#", "a a.b a.b.c a.b.c.d a. a..", "ab a+c a(b b.a b A A.b"},
		{"a.*.c", "a.b.c a..c a.*.c", "a.c a.b.b.c a.b.c.d a.b.C a a+b+c"},
		{"#", "x.key a a.b.c a.b.c.d a+c a(b a.key.key . .. .a a.", ""},
		{"*", "a ab a+c a(b - _ 0 日本", "a.b . a. .a"},
		{"*.*", "a.b . a. .a", "a a.b.c .."},
		{"#.c", "c a.c a.b.c .c ..c c.c", "c.a cc a.cc"},
		{"#.#", "a a.b .", ""},
		{"#.*", "a a.b .", ""},
		{"*.#", "a a.b .", ""},
		{"a.#.c", "a.c a.b.c a.b.c.c a..c a.c.c", "a.c.b a c ac"},
		{"#.b.#", "b a.b b.a a.b.a b.b", "a a.a ab"},
		{"a.#.b.#.c", "a.b.c a.x.b.y.c a.b.b.c a.c.b.c", "a.c.b a.c a.b"},
		{"#.a.*.b", "a.x.b a.a.b a.a.a.b x.a.x.b a.a.x.a.x.b", "a.b a.x.x.b a.x.b.x"},
		{"a.#.#.c", "a.c a.b.c a.b.b.c", "a c"},
		{"a_b.*", "a_b.c a_b.-", "a-b.c axb.c"},
		{"*.a-b", "_.a-b 0.a-b", "_.a_b"},
		{"grün.*", "grün.日本", "grun.x gru\u0308n.x"}, // the last is another spelling of ü
		{".*", ".a .", "a a.b .."},
		{"*.", "a. .", "a a.b"},
		{"a.+", "a.+", "a.b a.a"},
		{"(a|b).*", "(a|b).c", "a.c b.c"},
		{"[a-c].*", "[a-c].x", "a.x"},
		{"^a.*", "^a.x", "a.x"},
		{`a\.*`, `a\.x`, "a.x"},
		{"a*", "a*", "a ab a.b a*.b"}, // not a word of its own: literal
		{"a#", "a#", "a ab a.b"},
		{"**", "**", "a *"},
		{"##.*", "##.a", "a a.b"},
		{"a?c", "a?c", "abc"},
		{"a", "a", "A b a. .a a.a aa"},
		{"", "", "a . #"},
	} {
		checkMatches(t, test.pattern, test.yes, true)
		if test.never != "" {
			checkMatches(t, test.pattern, test.never, false)
		}
	}
}

func checkMatches(t *testing.T, pattern, topics string, want bool) {
	t.Helper()
	for topic := range strings.SplitSeq(topics, " ") {
		if got := transport.Match(pattern, topic); got != want {
			t.Errorf("Match(%q, %q) = %t", pattern, topic, got)
		}
	}
}

// reference says the same as Match, by the definition: it tries everything.
func reference(pattern, topic []string) bool {
	switch {
	case len(pattern) == 0:
		return len(topic) == 0
	case pattern[0] == "#":
		return reference(pattern[1:], topic) || len(topic) > 0 && reference(pattern, topic[1:])
	case len(topic) == 0:
		return false
	}
	return (pattern[0] == "*" || pattern[0] == topic[0]) && reference(pattern[1:], topic[1:])
}

func checkAgainstReference(t *testing.T, pattern, topic string) {
	t.Helper()
	want := reference(strings.Split(pattern, "."), strings.Split(topic, "."))
	if got := transport.Match(pattern, topic); got != want {
		t.Errorf("Match(%q, %q) = %t, want %t", pattern, topic, got, want)
	}
}

func TestMatchAgreesWithItsDefinition(t *testing.T) {
	t.Parallel()
	const seed = 1
	r := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // the same cases each time
	random := func(words ...string) string {
		s := make([]string, 1+r.IntN(6))
		for i := range s {
			s[i] = words[r.IntN(len(words))]
		}
		return strings.Join(s, ".")
	}
	for range 50_000 {
		checkAgainstReference(t, random("#", "#", "*", "a", "b", ""), random("a", "b", "", "*"))
	}
}

func FuzzMatch(f *testing.F) {
	for _, pattern := range []string{"*.key", "a.#", "a.*.c", "#", "#.b.#", "a.b", "", ".", "a.#.#.*"} {
		for _, topic := range []string{"x.key", "a", "a.b.c", "a+c", "a.key.key", "", "..", "b"} {
			f.Add(pattern, topic)
		}
	}
	f.Fuzz(func(t *testing.T, pattern, topic string) {
		if strings.Count(pattern, ".") > 8 || strings.Count(topic, ".") > 12 {
			return // the reference is exponential
		}
		checkAgainstReference(t, pattern, topic)
	})
}

func TestMatchIsNeverSlow(t *testing.T) {
	t.Parallel()
	pattern := strings.Repeat("#.a.", 63) + "b"
	topic := strings.Repeat("a.", 127) + "a"
	began := time.Now()
	for range 100 {
		if transport.Match(pattern, topic) {
			t.Fatal("it does not match")
		}
	}
	if took := time.Since(began); took > 10*time.Second { // exponential would be for ever
		t.Errorf("100 matches took %v", took)
	}
}

func TestIsPattern(t *testing.T) {
	t.Parallel()
	for topic, want := range map[string]bool{
		"#": true, "*": true, "a.*": true, "a.#.b": true, "*.a": true,
		"": false, "a": false, "a*": false, "#a": false, "a.b*": false, "**": false, ".": false,
	} {
		if got := transport.IsPattern(topic); got != want {
			t.Errorf("IsPattern(%q) = %t", topic, got)
		}
	}
}

func TestCheckTopic(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, topic string
		topicOK     bool
		patternOK   bool
	}{
		{"one byte", "a", true, true},
		{"empty", "", false, false},
		{"255 bytes", strings.Repeat("x", 255), true, true},
		{"256 bytes", strings.Repeat("x", 256), false, false},
		{"255 bytes in 85 runes", strings.Repeat("日", 85), true, true},
		{"256 bytes in 86 runes", strings.Repeat("日", 85) + "x", false, false},
		{"256 bytes in 64 runes", strings.Repeat("🚀", 64), false, false},
		{"NUL", "a\x00b", false, false},
		{"invalid UTF-8", "a\xffb", false, false},
		{"half a rune", "日"[:2], false, false},
		{"blank", " ", true, true},
		{"dots", "..", true, true},
		{"star", "a.*", false, true},
		{"hash", "#", false, true},
		{"star in a word", "a*.b", true, true},
		{"255 bytes with a wildcard", strings.Repeat("x", 253) + ".#", false, true},
		{"256 bytes with a wildcard", strings.Repeat("x", 254) + ".#", false, false},
	} {
		if err := transport.CheckTopic(test.topic); (err == nil) != test.topicOK {
			t.Errorf("%s: CheckTopic says %v", test.name, err)
		}
		if err := transport.CheckPattern(test.topic); (err == nil) != test.patternOK {
			t.Errorf("%s: CheckPattern says %v", test.name, err)
		}
	}
}
