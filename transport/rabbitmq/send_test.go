package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	wmmessage "github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/rabbitmq"
)

// odd is a Marshaler by which a test has the broker refuse single messages.
type odd struct{ rabbitmq.Marshaler }

func (o odd) Marshal(m *wmmessage.Message) (amqp091.Publishing, error) {
	p, err := o.Marshaler.Marshal(m)
	switch string(m.Payload) {
	case "wrong user": // the broker closes the channel for it
		p.UserId = "somebody-else"
	case "no id":
		p.MessageId = ""
	case "wrong type":
		p.Headers["odd"] = struct{}{}
	case "expires":
		p.Expiration = "5s"
	case "unmarshalled":
		err = errors.New("no")
	}
	return p, err
}

func TestUnroutableSaysWhere(t *testing.T) {
	t.Parallel()
	exchange := "gocap-test-" + newID()
	tr := open(t, rabbitmq.Config{Exchange: exchange})
	err := tr.Send(t.Context(), []*transport.Message{message("nobody.takes", "")})[0]
	for _, want := range []string{exchange, "nobody.takes", "312"} {
		if !errors.Is(err, transport.ErrUnroutable) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrUnroutable with %q", err, want)
		}
	}
}

// TestManyUnroutable has far more returns under way than any buffer of a
// connection, and one stored message among them.
func TestManyUnroutable(t *testing.T) {
	t.Parallel()
	tr := open(t, rabbitmq.Config{Window: 100})
	c := receive(t, tr, transport.Source{Group: "gocap-test-" + newID(), Topics: []string{"taken"}})
	msgs := make([]*transport.Message, 1000)
	for i := range msgs {
		msgs[i] = message(fmt.Sprintf("nobody.%d", i%7), "")
	}
	msgs[501] = message("taken", "x")
	for i, err := range tr.Send(t.Context(), msgs) {
		if (err == nil) != (i == 501) || err != nil && !errors.Is(err, transport.ErrUnroutable) {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	c.nextAcked()
}

// TestUnroutableGoesOutWhenTheQueueIsThere is what the engine relies on.
func TestUnroutableGoesOutWhenTheQueueIsThere(t *testing.T) {
	t.Parallel()
	tr := open(t, rabbitmq.Config{})
	m := message("later", "x")
	if err := tr.Send(t.Context(), []*transport.Message{m})[0]; !errors.Is(err, transport.ErrUnroutable) {
		t.Errorf("got %v, want ErrUnroutable", err)
	}
	c := receive(t, tr, transport.Source{Group: "gocap-test-" + newID(), Topics: []string{"later"}})
	stored(t, tr.Send(t.Context(), []*transport.Message{m}))
	c.nextAcked()
}

// TestClosedForCauseFindsTheCulprits: the broker closes the channel for two of
// many messages; all others are stored, and those two are rejected.
func TestClosedForCauseFindsTheCulprits(t *testing.T) {
	t.Parallel()
	tr := open(t, rabbitmq.Config{AMQP: wmamqp.Config{Marshaler: odd{}}})
	c := receive(t, tr, transport.Source{Group: "gocap-test-" + newID(), Topics: []string{"a"}, Window: 500})
	msgs := make([]*transport.Message, 300)
	for i := range msgs {
		msgs[i] = message("a", "good")
	}
	msgs[17].Body, msgs[211].Body = []byte("wrong user"), []byte("wrong user")
	for i, err := range tr.Send(t.Context(), msgs) {
		switch bad := i == 17 || i == 211; {
		case bad && (!errors.Is(err, transport.ErrRejected) || !strings.Contains(err.Error(), "somebody-else")):
			t.Errorf("message %d: %v, want ErrRejected with the broker's cause", i, err)
		case !bad && err != nil:
			t.Errorf("message %d: %v", i, err)
		}
	}
	seen := map[string]bool{}
	for len(seen) < 298 {
		seen[c.nextAcked().ID] = true
	}
}

// TestCheckedBeforeTheWire: each of these would have closed the connection.
func TestCheckedBeforeTheWire(t *testing.T) {
	t.Parallel()
	tr := open(t, rabbitmq.Config{AMQP: wmamqp.Config{Marshaler: odd{}}, MaxMessageBytes: 1000})
	c := receive(t, tr, transport.Source{Group: "gocap-test-" + newID(), Topics: []string{"a"}})
	long := strings.Repeat("x", 256)
	withHeader := func(k, v string) *transport.Message {
		m := message("a", "")
		m.Headers[k] = v
		return m
	}
	longID := message("a", "")
	longID.ID = long
	bad := map[string]*transport.Message{
		"empty topic": message("", ""), "long topic": message(long, ""), "wildcard": message("a.*", ""),
		"long id": longID, "long header name": withHeader(long, ""), "large header": withHeader("h", strings.Repeat("x", 200_000)),
		"large body": message("a", strings.Repeat("x", 1001)), "wrong type": message("a", "wrong type"),
		"expiration": message("a", "expires"), "marshaler fails": message("a", "unmarshalled"),
	}
	for name, m := range bad {
		errs := tr.Send(t.Context(), []*transport.Message{message("a", "1"), m, message("a", "2")})
		if !errors.Is(errs[1], transport.ErrRejected) || !errors.Is(errs[1], transport.ErrPermanent) {
			t.Errorf("%s: %v, want ErrRejected and ErrPermanent", name, errs[1])
		}
		stored(t, []error{errs[0], errs[2]})
		c.nextAcked()
		c.nextAcked()
	}
	// An id is made where there is none, so that a return can be told.
	none := message("nobody", "no id")
	none.ID = ""
	if err := tr.Send(t.Context(), []*transport.Message{none})[0]; !errors.Is(err, transport.ErrUnroutable) {
		t.Errorf("without an id: %v, want ErrUnroutable", err)
	}
}

// TestFullQueueNacks: a nack is an answer of the message it is for.
func TestFullQueueNacks(t *testing.T) {
	t.Parallel()
	tr := open(t, rabbitmq.Config{Queue: rabbitmq.Classic, AMQP: wmamqp.Config{Queue: wmamqp.QueueConfig{
		Arguments: amqp091.Table{"x-max-length": int64(1), "x-overflow": "reject-publish"},
	}}})
	if err := tr.Declare(t.Context(), transport.Source{Group: "gocap-test-" + newID(), Topics: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	errs := tr.Send(t.Context(), []*transport.Message{message("a", "1"), message("nobody", "2"), message("a", "3")})
	for i, want := range []error{nil, transport.ErrUnroutable, transport.ErrRejected} {
		if !errors.Is(errs[i], want) {
			t.Errorf("message %d: %v, want %v", i, errs[i], want)
		}
	}
	if errors.Is(errs[2], transport.ErrPermanent) {
		t.Errorf("a full queue is not for ever: %v", errs[2])
	}
}

func TestClosedTransportIsUnavailable(t *testing.T) {
	t.Parallel()
	tr := rabbitmq.New(rabbitmq.Config{URL: brokerURL()})
	for range 2 {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
	src := transport.Source{Group: "g", Topics: []string{"a"}, Window: 1}
	for name, err := range map[string]error{
		"send":    tr.Send(t.Context(), []*transport.Message{message("a", "")})[0],
		"check":   tr.Check(t.Context()),
		"declare": tr.Declare(t.Context(), src),
		"receive": tr.Receive(t.Context(), src, func(context.Context, []transport.Delivery) {}),
	} {
		if !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("%s after Close: %v, want ErrUnavailable", name, err)
		}
	}
}
