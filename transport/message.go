package transport

import "maps"

// Names of the headers that this framework sets and reads. They are those of
// the .NET library CAP, so that both can talk over one broker.
const (
	HeaderID            = "cap-msg-id"
	HeaderTopic         = "cap-msg-name"
	HeaderType          = "cap-msg-type" // Go type name without package; information only
	HeaderSentTime      = "cap-senttime" // RFC 3339, UTC
	HeaderCorrelationID = "cap-corr-id"
	HeaderCorrelation   = "cap-corr-seq"
	HeaderReplyTo       = "cap-callback-name"
	HeaderKey           = "cap-key"
	HeaderGroup         = "cap-msg-group" // ignored when it comes from outside
)

// MaxTopicBytes is the longest topic and group name: the width of the table
// columns and of AMQP short strings.
const MaxTopicBytes = 255

// Message is what travels: a topic, headers and a body. A Message is not safe
// for concurrent changes.
type Message struct {
	ID      string            // header cap-msg-id
	Topic   string            // header cap-msg-name
	Headers map[string]string // all of them, those above included
	Body    []byte            // as the codec made it
}

// Clone returns a deep copy.
func (m *Message) Clone() *Message {
	c := *m
	c.Headers = maps.Clone(m.Headers)
	c.Body = append([]byte(nil), m.Body...)
	return &c
}
