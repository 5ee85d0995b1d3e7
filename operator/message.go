package operator

import "time"

// Message is a message as it is kept in a box: in that of what is published once,
// in that of what is received once for each subscription.
type Message struct {
	ID         string `json:"id"`         // of the row; it is what the other calls want
	MessageID  string `json:"message_id"` // of the message; the same as ID in Published
	Box        string `json:"box"`        // published or received
	Version    string `json:"version"`
	Topic      string `json:"topic"`
	Group      string `json:"group,omitempty"`      // Received
	Subscriber string `json:"subscriber,omitempty"` // Received; empty: no subscription takes it
	Key        string `json:"key,omitempty"`        // by which it is ordered; it waits for those before it

	State     State  `json:"state"`
	Attempts  int    `json:"attempts"` // answered with a failure so far
	Deaths    int    `json:"deaths"`   // instances that died with it in hand since the last answer
	LastError string `json:"last_error,omitempty"`

	// Moments are the database's.
	AddedAt   time.Time `json:"added_at"`
	DueAt     time.Time `json:"due_at,omitzero"`     // zero: nothing more is due
	ExpiresAt time.Time `json:"expires_at,omitzero"` // set in final states

	Owned       bool `json:"owned"`        // an instance has it
	OwnerLiving bool `json:"owner_living"` // and lives; of one that does not it will be taken over

	Bytes int64 `json:"bytes"` // of headers and body
	// Headers and Body are there when content was asked for.
	Headers      map[string]string `json:"headers,omitempty"`
	HeadersError string            `json:"headers_error,omitempty"`
	Body         []byte            `json:"body,omitempty"`
}
