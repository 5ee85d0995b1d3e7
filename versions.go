package gocap

import (
	"fmt"
	"slices"
)

// checkAlsoVersions reports one problem for each name.
func (o Options) checkAlsoVersions(v *validation) {
	for i, also := range o.AlsoVersions {
		switch {
		case !validVersion(also):
			v.check(false, "AlsoVersions", fmt.Sprintf("%q is not 1 to 20 bytes of letters, digits, '.', '_' and '-'", also))
		case also == o.Version:
			v.check(false, "AlsoVersions", fmt.Sprintf("%q is the bus's own version; name others only", also))
		case slices.Contains(o.AlsoVersions[:i], also):
			v.check(false, "AlsoVersions", fmt.Sprintf("%q is there twice", also))
		}
	}
}

func validVersion(s string) bool {
	if s == "" || len(s) > 20 {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
