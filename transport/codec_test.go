package transport_test

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/capbus/gocap/transport"
)

type order struct {
	ID   int64  `json:"id"`
	Note string `json:"note"`
}

// roundTrip encodes a value, checks the body and decodes it as a T.
func roundTrip[T any](t *testing.T, name string, v any, body string, want T) {
	t.Helper()
	got, err := transport.JSON.Encode(v)
	if err != nil {
		t.Errorf("%s: encode: %v", name, err)
		return
	}
	if string(got) != body {
		t.Errorf("%s: body is %s, want %s", name, got, body)
	}
	decodesTo(t, name, got, want)
}

func decodesTo[T any](t *testing.T, name string, body []byte, want T) {
	t.Helper()
	var back T
	if err := transport.JSON.Decode(body, &back); err != nil {
		t.Errorf("%s: decode into %T: %v", name, back, err)
		return
	}
	if !reflect.DeepEqual(back, want) {
		t.Errorf("%s: decoded %#v, want %#v", name, back, want)
	}
}

func TestJSONRoundTrip(t *testing.T) {
	t.Parallel()
	roundTrip[any](t, "nil", nil, "null", nil)
	roundTrip[*order](t, "nil", nil, "null", nil)
	roundTrip(t, "nil", nil, "null", order{})
	roundTrip(t, "nil", nil, "null", 0)
	roundTrip(t, "nil", nil, "null", "")
	roundTrip[[]byte](t, "nil", nil, "null", nil)
	roundTrip[*order](t, "typed nil", (*order)(nil), "null", nil)
	roundTrip(t, "typed nil", (*order)(nil), "null", order{})
	roundTrip(t, "empty string", "", `""`, "")
	roundTrip(t, "empty bytes", []byte{}, `""`, []byte{})
	roundTrip[[]byte](t, "nil bytes", []byte(nil), "null", nil)
	roundTrip(t, "bytes", []byte{0, 255}, `"AP8="`, []byte{0, 255})
	roundTrip(t, "struct{}", struct{}{}, "{}", struct{}{})
	roundTrip(t, "raw null", json.RawMessage("null"), "null", json.RawMessage("null"))
	roundTrip[*order](t, "raw null", json.RawMessage("null"), "null", nil)
	roundTrip(t, "0", 0, "0", 0)
	roundTrip(t, "false", false, "false", false)
	roundTrip(t, "the string null", "null", `"null"`, "null")
	roundTrip(t, "struct", order{ID: 7, Note: "grün 日本 🚀"}, `{"id":7,"note":"grün 日本 🚀"}`, order{ID: 7, Note: "grün 日本 🚀"})
	roundTrip(t, "pointer", &order{ID: 7}, `{"id":7,"note":""}`, &order{ID: 7})
	roundTrip(t, "nil map", map[string]int(nil), "null", map[string]int(nil))
	roundTrip(t, "empty slice", []int{}, "[]", []int{})
}

func TestJSONKeepsBigIntegers(t *testing.T) {
	t.Parallel()
	roundTrip(t, "2^53+1", int64(1<<53+1), "9007199254740993", int64(1<<53+1))
	roundTrip(t, "least", int64(math.MinInt64), "-9223372036854775808", int64(math.MinInt64))
	roundTrip(t, "most", uint64(math.MaxUint64), "18446744073709551615", uint64(math.MaxUint64))
	roundTrip(t, "in a struct", order{ID: math.MaxInt64}, `{"id":9223372036854775807,"note":""}`, order{ID: math.MaxInt64})
	roundTrip(t, "number", json.Number("12345678901234567890123"), "12345678901234567890123", json.Number("12345678901234567890123"))
	roundTrip(t, "raw", json.RawMessage(`{"id":9007199254740993}`), `{"id":9007199254740993}`, json.RawMessage(`{"id":9007199254740993}`))
}

func TestJSONTakesAnEmptyBodyForNull(t *testing.T) {
	t.Parallel()
	for _, body := range [][]byte{nil, {}, []byte(" "), []byte("\r\n\t")} {
		decodesTo[any](t, "any", body, nil)
		decodesTo[*order](t, "pointer", body, nil)
		decodesTo(t, "struct", body, order{})
		decodesTo(t, "string", body, "")
		decodesTo(t, "int", body, 0)
		decodesTo(t, "raw", body, json.RawMessage("null"))
	}
}

func TestJSONRefusesWhatIsNoJSON(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"{", "nul", "{} {}", "\x00", "'a'", `"a`, "\xef\xbb\xbf{}"} {
		var v any
		if err := transport.JSON.Decode([]byte(body), &v); err == nil {
			t.Errorf("%q was decoded as %v", body, v)
		}
	}
	var o order
	if err := transport.JSON.Decode([]byte(`{"id":"seven"}`), &o); err == nil {
		t.Error("a string was decoded as an int64")
	}
	if _, err := transport.JSON.Encode(make(chan int)); err == nil {
		t.Error("a channel was encoded")
	}
}
