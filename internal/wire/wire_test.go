package wire_test

import (
	"maps"
	"testing"

	"github.com/capbus/gocap/internal/wire"
)

func TestHeadersComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	for _, h := range []map[string]string{
		nil,
		{},
		{"cap-msg-id": "1", "traceparent": "00-ab-cd-01", "empty": ""},
		{"html <&>": "\u2028 \" \\ \n"},
	} {
		back, err := wire.DecodeHeaders(wire.EncodeHeaders(h))
		if err != nil || back == nil || !maps.Equal(back, h) {
			t.Errorf("%q came back as %q, %v", h, back, err)
		}
	}
}

// TestHeadersThatCannotBeRead: never a nil map, whatever the row holds.
func TestHeadersThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for in, bad := range map[string]bool{"": false, "null": false, "{}": false, "[]": true, `{"a":1}`: true, "\xff": true} {
		h, err := wire.DecodeHeaders([]byte(in))
		if h == nil || (err != nil) != bad {
			t.Errorf("%q: %v, %v", in, h, err)
		}
	}
}

func FuzzDecodeHeaders(f *testing.F) {
	f.Add([]byte(`{"a":"b"}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := wire.DecodeHeaders(b)
		if h == nil {
			t.Fatal("no map")
		}
		if err == nil {
			back, err := wire.DecodeHeaders(wire.EncodeHeaders(h))
			if err != nil || !maps.Equal(h, back) {
				t.Fatalf("%q became %q, %v", h, back, err)
			}
		}
	})
}
