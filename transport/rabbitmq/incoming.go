package rabbitmq

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
)

// incoming makes a message of a delivery, whoever sent it. Topic and id may be
// empty: the engine stores such a message as failed, with its body.
func (c Config) incoming(queue string, d amqp091.Delivery) *transport.Message {
	wm, err := c.unmarshal(d)
	if err != nil || wm == nil {
		wm, _ = Marshaler{}.Unmarshal(d) // a foreign one; never sent back in a loop
	}
	m := &transport.Message{ID: wm.UUID, Headers: make(map[string]string, len(wm.Metadata)+2), Body: wm.Payload}
	for k, v := range wm.Metadata {
		m.Headers[k] = v
	}
	if m.Body == nil {
		m.Body = []byte{}
	}
	if id := m.Headers[transport.HeaderID]; id != "" {
		m.ID = id
	}
	if m.ID == "" {
		m.ID = validText(d.MessageId)
	}
	m.Topic = c.topic(queue, d, m.Headers[transport.HeaderTopic])
	// What a handler reads of the headers is there for foreign messages too.
	setMissing(m.Headers, transport.HeaderID, m.ID)
	setMissing(m.Headers, transport.HeaderTopic, m.Topic)
	return m
}

// unmarshal turns a panic of a Marshaler of the user's into an error: the message
// would come again and again.
func (c Config) unmarshal(d amqp091.Delivery) (m *message.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panicked: %v", p)
		}
	}()
	return c.AMQP.Marshaler.Unmarshal(d)
}

func setMissing(h map[string]string, k, v string) {
	if h[k] == "" && v != "" {
		h[k] = v
	}
}

// topic is that of the header, else what the message was sent to this group with.
// It has another routing key when it comes from the retry queue or was parked.
func (c Config) topic(queue string, d amqp091.Delivery, header string) string {
	switch {
	case header != "":
		return header
	case d.Exchange == "" && d.RoutingKey == queue:
		return firstKey(d.Headers, queue)
	case c.exchangePerTopic() && d.Exchange != "":
		return d.Exchange
	}
	return d.RoutingKey
}
