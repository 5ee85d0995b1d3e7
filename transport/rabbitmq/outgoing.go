package rabbitmq

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/transport"
)

// outgoing is one message on its way to the broker, with its answer.
type outgoing struct {
	exchange, key string
	pub           amqp091.Publishing

	confirm *amqp091.DeferredConfirmation
	missing bool // the exchange was not there once; it has been declared since
	done    bool
	err     error
}

func (o *outgoing) answer(err error) { o.done, o.err = true, err }

// outgoing makes a publishing of a message, or answers it when the broker must
// not see it: a name that is too long would close the whole connection.
func (c Config) outgoing(m *transport.Message, frameMax int) *outgoing {
	o := &outgoing{}
	if err := transport.CheckTopic(m.Topic); err != nil {
		o.answer(refused(err))
		return o
	}
	wm := message.NewMessage(m.ID, m.Body)
	wm.Metadata = make(message.Metadata, len(m.Headers)+2)
	maps.Copy(wm.Metadata, m.Headers)
	// The topic travels, because dead letters lose their routing key.
	setMissing(wm.Metadata, transport.HeaderID, m.ID)
	setMissing(wm.Metadata, transport.HeaderTopic, m.Topic)
	pub, err := c.AMQP.Marshaler.Marshal(wm)
	if err != nil {
		o.answer(refused(fmt.Errorf("marshal: %w", err)))
		return o
	}
	if pub.MessageId == "" {
		pub.MessageId = m.ID
	}
	if pub.MessageId == "" { // a returned message is known by its id
		id := ids.New()
		pub.MessageId = fmt.Sprintf("%x", id[:])
	}
	pub.DeliveryMode = amqp091.Persistent
	o.pub = pub
	o.exchange = c.AMQP.Exchange.GenerateName(m.Topic)
	o.key = c.AMQP.Publish.GenerateRoutingKey(m.Topic)
	if err := c.check(o, frameMax); err != nil {
		o.answer(refused(err))
	}
	return o
}

// propertyBytes is what a header frame has beside headers and short strings.
const propertyBytes = 64

// check finds what the client or the broker would answer by closing the
// connection.
func (c Config) check(o *outgoing, frameMax int) error {
	p := &o.pub
	size := propertyBytes
	for name, s := range map[string]string{
		"exchange": o.exchange, "routing key": o.key, "message id": p.MessageId, "type": p.Type,
		"content type": p.ContentType, "content encoding": p.ContentEncoding, "correlation id": p.CorrelationId,
		"reply to": p.ReplyTo, "user id": p.UserId, "app id": p.AppId, "expiration": p.Expiration,
	} {
		if len(s) > transport.MaxTopicBytes {
			return fmt.Errorf("the %s has %d bytes; at most %d are allowed", name, len(s), transport.MaxTopicBytes)
		}
		size += len(s) + 1
	}
	if strings.Trim(p.Expiration, "0123456789") != "" {
		return errors.New("the expiration is not a number of milliseconds in digits")
	}
	if len(p.Body) > c.MaxMessageBytes {
		return fmt.Errorf("the body has %d bytes; Config.MaxMessageBytes allows %d", len(p.Body), c.MaxMessageBytes)
	}
	n, err := tableBytes(p.Headers)
	if err != nil {
		return err
	}
	if size += n; frameMax > 0 && size > frameMax {
		return fmt.Errorf("the headers have %d bytes; the broker takes %d (its frame_max)", size, frameMax)
	}
	return nil
}

// tableBytes is at least the size of a table on the wire.
func tableBytes(t amqp091.Table) (int, error) {
	if err := t.Validate(); err != nil {
		return 0, err
	}
	size := 4
	for k, v := range t {
		if len(k) > transport.MaxTopicBytes {
			return 0, fmt.Errorf("a header name has %d bytes; at most %d are allowed", len(k), transport.MaxTopicBytes)
		}
		n, err := valueBytes(v)
		if err != nil {
			return 0, err
		}
		size += len(k) + 2 + n
	}
	return size, nil
}

func valueBytes(v any) (int, error) {
	switch v := v.(type) {
	case string:
		return len(v) + 4, nil
	case []byte:
		return len(v) + 4, nil
	case amqp091.Table:
		return tableBytes(v)
	case []any:
		size := 4
		for _, e := range v {
			n, err := valueBytes(e)
			if err != nil {
				return 0, err
			}
			size += n + 1
		}
		return size, nil
	}
	return 9, nil
}
