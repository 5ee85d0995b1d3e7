package cap_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/capbus/gocap/cap"
)

// TestAMessageIsNotAValue: published as it is, its fields would be the body.
func TestAMessageIsNotAValue(t *testing.T) {
	t.Parallel()
	b := newRig(t, cap.Options{})
	m := &cap.Message{Topic: "t", Body: []byte(`{"n":1}`)}
	for _, msg := range []any{m, *m} {
		if err := b.Publish(t.Context(), cap.NoTx, "t", msg); err == nil || !strings.Contains(err.Error(), "json.RawMessage(m.Body)") {
			t.Errorf("%T: %v", msg, err)
		}
	}
	if err := b.Publish(t.Context(), cap.NoTx, "t", json.RawMessage(m.Body)); err != nil {
		t.Error(err)
	}
}
