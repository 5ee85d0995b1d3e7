package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Codec turns values into bodies and back. It must be safe for concurrent use.
type Codec interface {
	Encode(v any) ([]byte, error)
	// Decode fills the value that v points to. An error ends the message as
	// failed for good, with its body kept; its text is logged and stored, so it
	// should not quote the body.
	Decode(body []byte, v any) error
}

// JSON is the default codec: the body is the JSON of the value alone; a
// json.RawMessage is the body, byte for byte. An empty body decodes as null,
// because .NET CAP sends null that way. A number decodes into an any as a
// json.Number, which keeps all its digits. Fields that a struct has not are left
// out: who needs them takes a map, a json.RawMessage or a *Message.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Encode(v any) ([]byte, error) {
	if raw, ok := v.(json.RawMessage); ok && json.Valid(raw) {
		return bytes.Clone(raw), nil // Marshal would write it anew
	}
	return json.Marshal(v)
}

func (jsonCodec) Decode(body []byte, v any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("null")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			return fmt.Errorf("json: something follows the value (byte %d)", d.InputOffset())
		}
		return nil
	}
	return &jsonError{err}
}

// Bytes is the codec for bodies that are ready: []byte and string, as they are. A
// handler takes one of these, an any (a []byte), or a *Message.
var Bytes Codec = bytesCodec{}

type bytesCodec struct{}

func (bytesCodec) Encode(v any) ([]byte, error) {
	switch b := v.(type) {
	case []byte:
		return bytes.Clone(b), nil
	case string:
		return []byte(b), nil
	}
	return nil, fmt.Errorf("transport.Bytes takes a []byte or a string, not a %T", v)
}

func (bytesCodec) Decode(body []byte, v any) error {
	switch p := v.(type) {
	case *[]byte:
		*p = bytes.Clone(body)
	case *any:
		*p = bytes.Clone(body)
	case *string:
		*p = string(body)
	default:
		return fmt.Errorf("transport.Bytes gives a []byte or a string, not a %s", strings.TrimPrefix(fmt.Sprintf("%T", v), "*"))
	}
	return nil
}

// jsonError says what is wrong with a body without quoting it, as the errors of
// encoding/json, and of types that decode themselves, do.
type jsonError struct{ err error }

func (e *jsonError) Unwrap() error { return e.err }

func (e *jsonError) Error() string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(e.err, io.ErrUnexpectedEOF):
		return "json: the body ends before the value does"
	case errors.As(e.err, &syntax):
		return fmt.Sprintf("json: %v (byte %d)", syntax, syntax.Offset)
	case errors.As(e.err, &kind):
		what, _, _ := strings.Cut(kind.Value, " ") // "number 5"
		if kind.Field != "" {
			return fmt.Sprintf("json: cannot unmarshal %s into field %s of type %s (byte %d)", what, kind.Field, kind.Type, kind.Offset)
		}
		return fmt.Sprintf("json: cannot unmarshal %s into Go value of type %s (byte %d)", what, kind.Type, kind.Offset)
	}
	return fmt.Sprintf("json: %T of a type that decodes itself", e.err)
}
