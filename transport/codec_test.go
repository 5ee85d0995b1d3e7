package transport_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

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

// A handler that takes any, and a body that is handed on, lose nothing either.
func TestJSONKeepsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	const body = `{"id":9007199254740993,"sum":0.1,"exact":1.0,"huge":1e400,"new":{"list":[-0,18446744073709551616]}}`
	var v any
	if err := transport.JSON.Decode([]byte(body), &v); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"id": json.Number("9007199254740993"), "sum": json.Number("0.1"), "exact": json.Number("1.0"), "huge": json.Number("1e400"),
		"new": map[string]any{"list": []any{json.Number("-0"), json.Number("18446744073709551616")}},
	}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("any is %#v", v)
	}
	decodesTo(t, "a struct that knows one field", []byte(body), order{ID: 9007199254740993})
	decodesTo(t, "raw", []byte(body), json.RawMessage(body))
}

func TestJSONLeavesRawMessagesAsTheyAre(t *testing.T) {
	t.Parallel()
	const body = "{ \"b\": \"<&>\u2028\",\n\t\"a\": 1.50 } "
	roundTrip(t, "raw", json.RawMessage(body), body, json.RawMessage(body[:len(body)-1])) // as encoding/json decodes one
	raw := json.RawMessage(`{"a":1}`)
	got, err := transport.JSON.Encode(raw)
	if err != nil {
		t.Fatal(err)
	}
	raw[1] = 'x'
	if string(got) != `{"a":1}` {
		t.Errorf("the body is %s after the value was changed", got)
	}
	for _, bad := range []string{"", "{", "{} {}"} {
		if _, err := transport.JSON.Encode(json.RawMessage(bad)); err == nil {
			t.Errorf("a raw message %q was encoded", bad)
		}
	}
}

func TestJSONKeepsFloatsAndTimes(t *testing.T) {
	t.Parallel()
	for _, f := range []float64{0.1, 1.0 / 3, math.MaxFloat64, math.SmallestNonzeroFloat64, -1e21, 123456789.125, math.Copysign(0, -1)} {
		body, err := transport.JSON.Encode(f)
		if err != nil {
			t.Fatal(err)
		}
		decodesTo(t, "float", body, f)
	}
	for _, f := range []float64{math.NaN(), math.Inf(1)} {
		if body, err := transport.JSON.Encode(f); err == nil {
			t.Errorf("%v was encoded as %s", f, body)
		}
	}
	utc := time.Date(2026, 3, 29, 1, 59, 59, 999_999_999, time.UTC)
	roundTrip(t, "time", utc, `"2026-03-29T01:59:59.999999999Z"`, utc)
	var back time.Time
	body, err := transport.JSON.Encode(utc.In(time.FixedZone("", 5*3600+1800)))
	if err == nil {
		err = transport.JSON.Decode(body, &back)
	}
	if _, offset := back.Zone(); err != nil || !back.Equal(utc) || offset != 5*3600+1800 {
		t.Errorf("%s came back as %s, %v", body, back, err)
	}
}

func TestBytesAreLeftAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "\x00\xff\x00", `{"a": 1} `, "grün"} {
		for _, v := range []any{[]byte(body), body} {
			got, err := transport.Bytes.Encode(v)
			if err != nil || string(got) != body {
				t.Errorf("%T %q: %q, %v", v, body, got, err)
			}
		}
		var b []byte
		var s string
		var a any
		for _, v := range []any{&b, &s, &a} {
			if err := transport.Bytes.Decode([]byte(body), v); err != nil {
				t.Errorf("%T: %v", v, err)
			}
		}
		if of, ok := a.([]byte); !ok || string(of) != body || string(b) != body || s != body {
			t.Errorf("%q decoded as %q, %q, %q", body, b, s, a)
		}
	}
	stored := []byte("ab")
	var b []byte
	if err := transport.Bytes.Decode(stored, &b); err != nil {
		t.Fatal(err)
	}
	if b[0] = 'x'; string(stored) != "ab" {
		t.Error("a handler that changes its value changes the message")
	}
}

func TestBytesRefusesWhatIsNone(t *testing.T) {
	t.Parallel()
	for _, v := range []any{nil, 7, order{}, &stringer{}, json.RawMessage("1")} {
		if _, err := transport.Bytes.Encode(v); err == nil || !strings.Contains(err.Error(), "not a ") {
			t.Errorf("%T: %v", v, err)
		}
	}
	var o order
	if err := transport.Bytes.Decode([]byte("{}"), &o); err == nil || !strings.Contains(err.Error(), "not a transport_test.order") {
		t.Errorf("into a struct: %v", err)
	}
}

type stringer struct{}

func (*stringer) String() string { return "no" }

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
	for _, body := range []string{"{", "nul", "{} {}", "1 x", "[1]]", "\x00", "'a'", `"a`, "\xef\xbb\xbf{}"} {
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
