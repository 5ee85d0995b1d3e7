package wmadapter

import (
	"cmp"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/transport"
)

// outgoing makes a Watermill message: UUID is the id, metadata the headers,
// payload the body. It shares nothing with m: a call of Publish may go on when
// Send has returned.
func outgoing(m *transport.Message) *message.Message {
	wm := message.NewMessage(m.ID, append([]byte{}, m.Body...))
	wm.Metadata = make(message.Metadata, len(m.Headers)+2)
	maps.Copy(wm.Metadata, m.Headers)
	setMissing(wm.Metadata, transport.HeaderID, m.ID)
	setMissing(wm.Metadata, transport.HeaderTopic, m.Topic)
	return wm
}

// incoming makes a message of what came by the subscription to a topic. The id is
// that of the header, else the UUID; the topic that of the header, else the one
// that was subscribed to, unless that is a pattern.
func incoming(wm *message.Message, topic string) *transport.Message {
	m := &transport.Message{
		ID: idOf(wm), Topic: wm.Metadata[transport.HeaderTopic],
		Headers: make(map[string]string, len(wm.Metadata)+2), Body: append([]byte{}, wm.Payload...),
	}
	maps.Copy(m.Headers, wm.Metadata)
	if m.Topic == "" && !transport.IsPattern(topic) {
		m.Topic = topic
	}
	setMissing(m.Headers, transport.HeaderID, m.ID)
	setMissing(m.Headers, transport.HeaderTopic, m.Topic)
	return m
}

func idOf(wm *message.Message) string { return cmp.Or(wm.Metadata[transport.HeaderID], wm.UUID) }

func setMissing(h map[string]string, k, v string) {
	if h[k] == "" && v != "" {
		h[k] = v
	}
}

// phantom reports whether a message is none: watermill-amqp hands out an empty one
// when its queue is deleted.
func phantom(wm *message.Message) bool {
	return wm == nil || idOf(wm) == "" && len(wm.Payload) == 0
}
