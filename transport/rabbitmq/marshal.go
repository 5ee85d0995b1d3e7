package rabbitmq

import (
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
)

// Marshaler writes and reads messages as the .NET library CAP does: headers are
// strings, message-id is the id, the body is the payload. It reads headers of
// every AMQP type. It implements the Marshaler of watermill-amqp, whose own
// Publisher and Subscriber may use it too.
type Marshaler struct{}

// Marshal never fails.
func (Marshaler) Marshal(m *message.Message) (amqp091.Publishing, error) {
	h := make(amqp091.Table, len(m.Metadata)+1)
	for k, v := range m.Metadata {
		h[k] = v
	}
	if _, ok := h[transport.HeaderID]; !ok {
		h[transport.HeaderID] = m.UUID
	}
	return amqp091.Publishing{Headers: h, MessageId: m.UUID, DeliveryMode: amqp091.Persistent, Body: m.Payload}, nil
}

// Unmarshal never fails. The id is that of the header, else message-id, else
// empty.
func (Marshaler) Unmarshal(d amqp091.Delivery) (*message.Message, error) {
	h := headerStrings(d.Headers)
	id := h[transport.HeaderID]
	if id == "" {
		id = validText(d.MessageId)
	}
	m := message.NewMessage(id, d.Body)
	m.Metadata = h
	return m, nil
}
