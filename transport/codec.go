package transport

import (
	"bytes"
	"encoding/json"
)

// Codec turns values into bodies and back. It must be safe for concurrent use.
type Codec interface {
	Encode(v any) ([]byte, error)
	// Decode fills the value that v points to. An error ends the message as
	// failed for good, with its body kept.
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
	return json.Unmarshal(body, v)
}
