package transport_test

import (
	"reflect"
	"testing"

	"go.uber.org/goleak"

	"github.com/capbus/gocap/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCloneSharesNothing(t *testing.T) {
	t.Parallel()
	newMessage := func() *transport.Message {
		return &transport.Message{ID: "1", Topic: "t", Headers: map[string]string{"k": "v", "empty": ""}, Body: []byte("body")}
	}
	m := newMessage()
	c := m.Clone()
	if !reflect.DeepEqual(c, m) {
		t.Errorf("the clone is %+v", c)
	}
	c.ID, c.Topic, c.Headers["k"], c.Body[0] = "2", "u", "w", 'x'
	c.Body = append(c.Body, 'y')
	if !reflect.DeepEqual(m, newMessage()) {
		t.Errorf("a change to the clone made %+v of the message", m)
	}
}

func TestCloneOfAnEmptyMessage(t *testing.T) {
	t.Parallel()
	c := (&transport.Message{}).Clone()
	if c.Headers != nil || len(c.Body) != 0 {
		t.Errorf("the clone is %+v", c)
	}
}

func TestHeaderNamesAreThoseOfDotNetCAP(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		transport.HeaderID:            "cap-msg-id",
		transport.HeaderTopic:         "cap-msg-name",
		transport.HeaderType:          "cap-msg-type",
		transport.HeaderSentTime:      "cap-senttime",
		transport.HeaderCorrelationID: "cap-corr-id",
		transport.HeaderCorrelation:   "cap-corr-seq",
		transport.HeaderReplyTo:       "cap-callback-name",
		transport.HeaderGroup:         "cap-msg-group",
	} {
		if got != want {
			t.Errorf("header is %q, want %q", got, want)
		}
	}
}
