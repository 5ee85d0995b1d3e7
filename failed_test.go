package gocap_test

import (
	"fmt"
	"testing"

	"github.com/capbus/gocap"
)

func TestKindsHaveNames(t *testing.T) {
	t.Parallel()
	for kind, want := range map[gocap.Kind]string{gocap.Publish: "publish", gocap.Subscribe: "subscribe"} {
		if got := fmt.Sprint(kind); got != want {
			t.Errorf("Kind is %q, want %q", got, want)
		}
	}
}
