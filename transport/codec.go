package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// JSON is the default codec: the body is the JSON of the value alone. An empty
// body decodes as null, because .NET CAP sends null that way.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Encode(v any) ([]byte, error) { return json.Marshal(v) }

func (jsonCodec) Decode(body []byte, v any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("null")
	}
	if err := json.Unmarshal(body, v); err != nil {
		return &jsonError{err}
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
