package archtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestFxIsLeftOut: with the tag capnofx nothing of fx, nor of what fx is made of,
// is linked into a program that uses cap; without the tag fx is there, or this
// test would see nothing.
func TestFxIsLeftOut(t *testing.T) {
	t.Parallel()
	for tags, want := range map[string]bool{"": true, "capnofx": false} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags="+tags, //nolint:gosec // constants
			"-f", "{{with .Module}}{{.Path}}{{end}}", "./cap")
		cmd.Dir = moduleRoot(t)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		mods := slices.Compact(slices.Sorted(strings.FieldsSeq(string(out))))
		if got := slices.Contains(mods, modFx); got != want {
			t.Errorf("tags %q: fx is a dependency of cap: %v, want %v", tags, got, want)
		}
		if !want && !slices.Equal(mods, []string{module}) {
			t.Errorf("tags %q: cap needs the modules %v, want none but its own", tags, mods)
		}
	}
}
