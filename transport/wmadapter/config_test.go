package wmadapter_test

import (
	"strings"
	"testing"

	"github.com/capbus/gocap/transport/wmadapter"
)

func TestValidateNamesEveryProblem(t *testing.T) {
	t.Parallel()
	err := wmadapter.New(wmadapter.Config{Routing: true, Publishers: -1, CloseTimeout: -1}).Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"neither Publisher nor Subscriber", "Outcome", "Publishers is negative", "CloseTimeout is negative"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

func TestNamesAreDifferentAndPlain(t *testing.T) {
	t.Parallel()
	const most = 40
	name := wmadapter.Names("-.", most)
	seen := map[string]string{}
	long := strings.Repeat("x", most)
	for _, topic := range []string{
		"a", "A", "a.b", "a_b", "a b", "a_20b", "a__b", ".", "..", "a.", ".a", "a..b", "_2e", "grün", "日本",
		long, long + "x", long + "y", strings.Repeat("日", 50), "a\x00", "#", "*",
	} {
		n := name(topic)
		if other, there := seen[n]; there {
			t.Errorf("%q and %q are both %q", topic, other, n)
		}
		seen[n] = topic
		if len(n) > most || strings.Trim(n, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") != "" ||
			strings.HasPrefix(n, ".") || strings.HasSuffix(n, ".") || strings.Contains(n, "..") {
			t.Errorf("%q becomes %q", topic, n)
		}
	}
}
