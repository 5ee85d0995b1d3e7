// Package wire turns the headers of a message into the bytes that a row keeps,
// and back.
package wire

import "encoding/json"

// EncodeHeaders returns the headers as a JSON object, keys sorted.
func EncodeHeaders(h map[string]string) []byte {
	b, err := json.Marshal(h)
	if err != nil {
		return []byte("{}") // a map of strings always marshals
	}
	return b
}

// DecodeHeaders reads what EncodeHeaders made.
func DecodeHeaders(b []byte) (map[string]string, error) {
	h := map[string]string{}
	if len(b) == 0 {
		return h, nil
	}
	err := json.Unmarshal(b, &h)
	if h == nil {
		h = map[string]string{}
	}
	return h, err
}
