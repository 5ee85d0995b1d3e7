package sqlite

import "testing"

func TestPathOfAURI(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ goos, path, want string }{
		{"linux", "a.db", "a.db"},
		{"linux", "/x y/50%?#.db", "/x y/50%25%3f%23.db"},
		{"linux", "//x", "////x"},
		{"linux", `a\b`, `a\b`},
		{"windows", `C:\x\a.db`, "/C:/x/a.db"},
		{"windows", `\\host\share\a.db`, "////host/share/a.db"},
		{"windows", `x\a.db`, "x/a.db"},
	} {
		if got := uriPath(c.path, c.goos); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.goos, c.path, got, c.want)
		}
	}
}
