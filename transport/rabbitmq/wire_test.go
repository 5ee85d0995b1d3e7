package rabbitmq_test

import (
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/rabbitmq"
)

// TestWireIsThatOfCAP looks at what we send as the .NET library CAP would:
// persistent, message-id and headers as strings, routing key the topic, body as
// the codec made it.
func TestWireIsThatOfCAP(t *testing.T) {
	t.Parallel()
	exchange, group := "gocap-test-"+newID(), "gocap-test-"+newID()+".v1"
	tr := open(t, rabbitmq.Config{Exchange: exchange, Queue: rabbitmq.Classic}) // a quorum queue counts deliveries in a header
	if err := tr.Declare(t.Context(), transport.Source{Group: group, Topics: []string{"product.deleted"}}); err != nil {
		t.Fatal(err)
	}
	m := message("product.deleted", `{"id":7}`)
	maps.Copy(m.Headers, map[string]string{
		transport.HeaderType: "ProductDeleted", transport.HeaderSentTime: "2026-01-02T03:04:05Z",
		transport.HeaderCorrelationID: m.ID, transport.HeaderCorrelation: "0", transport.HeaderReplyTo: "",
	})
	stored(t, tr.Send(t.Context(), []*transport.Message{m}))
	r := rawDial(t, brokerURL())
	defer r.close()
	d := r.get(group)
	if d.Exchange != exchange || d.RoutingKey != "product.deleted" || d.MessageId != m.ID || d.DeliveryMode != amqp091.Persistent || d.ContentType != "" {
		t.Errorf("delivery is %+v", d)
	}
	if string(d.Body) != `{"id":7}` {
		t.Errorf("body is %s", d.Body)
	}
	got := map[string]string{}
	for k, v := range d.Headers {
		got[k], _ = v.(string)
	}
	if !maps.Equal(got, m.Headers) {
		t.Errorf("headers are %v, want %v", d.Headers, m.Headers)
	}
	// As CAP declares it, or the broker would answer 406.
	r.on(func(ch *amqp091.Channel) error {
		return ch.ExchangeDeclare(exchange, "topic", true, false, false, false, nil)
	})
}

func TestExchangeHasTheVersion(t *testing.T) {
	t.Parallel()
	tr := rabbitmq.New(rabbitmq.Config{URL: "amqp://rabbit/shop"})
	for version, want := range map[string]string{
		"v1": "rabbit:5672 shop cap.default.router", "v2": "rabbit:5672 shop cap.default.router.v2",
	} {
		if got := tr.ForVersion(version).Traits().Destination; got != want {
			t.Errorf("version %s goes to %q, want %q", version, got, want)
		}
	}
}

// TestReadsWhatCAPSends: what the .NET library CAP writes, and header values of
// every AMQP type.
func TestReadsWhatCAPSends(t *testing.T) {
	t.Parallel()
	exchange := "gocap-test-" + newID()
	tr := open(t, rabbitmq.Config{Exchange: exchange})
	c := receive(t, tr, transport.Source{Group: "gocap-test-" + newID(), Topics: []string{"product.deleted"}})
	r := rawDial(t, brokerURL())
	defer r.close()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r.put(exchange, "product.deleted", amqp091.Publishing{
		MessageId: "1234567890123456789", DeliveryMode: 2, Body: []byte(`{"Id":7}`),
		Headers: amqp091.Table{
			"cap-msg-id": "1234567890123456789", "cap-msg-name": "product.deleted", "cap-msg-type": "ProductDeleted",
			"cap-senttime": "01/02/2026 03:04:05", "cap-corr-id": []byte("1234567890123456789"), "cap-corr-seq": int32(0),
			"cap-callback-name": nil,
			"bool":              true, "byte": byte(7), "int8": int8(-7), "int16": int16(-300), "int64": int64(9007199254740993),
			"float": float32(1.5), "double": 2.25, "time": at, "decimal": amqp091.Decimal{Scale: 2, Value: -5},
			"table": amqp091.Table{"a": int32(1), "b": []any{"x", nil}}, "array": []any{int32(1), "two", []byte("three")},
			"broken": "\xff", "bytes": []byte("grün"), "empty": "",
		},
	})
	m := c.nextAcked()
	if m.ID != "1234567890123456789" || m.Topic != "product.deleted" || string(m.Body) != `{"Id":7}` {
		t.Errorf("message is %+v", m)
	}
	for k, want := range map[string]string{
		"cap-corr-id": "1234567890123456789", "cap-corr-seq": "0", "cap-callback-name": "", "cap-senttime": "01/02/2026 03:04:05",
		"bool": "true", "byte": "7", "int8": "-7", "int16": "-300", "int64": "9007199254740993", "float": "1.5", "double": "2.25",
		"time": "2026-01-02T03:04:05Z", "decimal": "-0.05", "table": `{"a":1,"b":["x",null]}`, "array": `[1,"two","three"]`,
		"broken": "hex:ff", "bytes": "grün", "empty": "",
	} {
		if got, ok := m.Headers[k]; !ok || got != want {
			t.Errorf("header %q is %q (there: %t), want %q", k, got, ok, want)
		}
	}
}

// TestForeignMessages arrive once each, whatever they are: with what routing key
// and message-id say, or without topic or id, for the engine to store as failed.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	exchange, group := "gocap-test-"+newID(), "gocap-test-"+newID()
	tr := open(t, rabbitmq.Config{Exchange: exchange})
	c := receive(t, tr, transport.Source{Group: group, Topics: []string{"#"}})
	r := rawDial(t, brokerURL())
	defer r.close()
	many := amqp091.Table{}
	for i := range 100 { // as much as a frame holds
		many[strings.Repeat("k", 100)+hex.EncodeToString([]byte{byte(i)})] = strings.Repeat("v", 1000)
	}
	for _, test := range []struct {
		name, exchange, key, wantTopic, wantID string
		pub                                    amqp091.Publishing
	}{
		{"routing key and id", exchange, "order.paid", "order.paid", "7", amqp091.Publishing{MessageId: "7", ContentType: "application/xml", Body: []byte("<a/>")}},
		{"no id", exchange, "order.paid", "order.paid", "", amqp091.Publishing{Body: []byte("x")}},
		{"no body", exchange, "order.paid", "order.paid", "8", amqp091.Publishing{MessageId: "8"}},
		{"no topic", "", group, "", "9", amqp091.Publishing{MessageId: "9", Body: []byte("x")}},
		{"not UTF-8", exchange, "order.\xff", "order.\xff", "hex:ff", amqp091.Publishing{MessageId: "\xff", Body: []byte("\xff\x00")}},
		{"many headers", exchange, "order.paid", "order.paid", "10", amqp091.Publishing{MessageId: "10", Headers: many, Body: []byte("x")}},
		{"empty CAP headers", exchange, "order.paid", "order.paid", "11", amqp091.Publishing{MessageId: "11", Headers: amqp091.Table{"cap-msg-id": "", "cap-msg-name": nil}}},
	} {
		r.put(test.exchange, test.key, test.pub)
		m := c.nextAcked()
		if m.Topic != test.wantTopic || m.ID != test.wantID || !slices.Equal(m.Body, test.pub.Body) || len(m.Headers) < len(test.pub.Headers) {
			t.Errorf("%s: topic %q, id %q, body %q", test.name, m.Topic, m.ID, m.Body)
		}
	}
	c.nothing(tr, "last")
}
