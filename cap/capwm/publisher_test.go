package capwm_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/cap/capwm"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

const payload = "\x00\xff {\"a\": 1}\n" // no codec would leave it so

func TestPublishIsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var in inbox
		bus := running(t, subscribe.To("t", in.handle))
		pub := capwm.NewPublisher(bus)
		failed := errors.New("no")
		for _, end := range []error{nil, failed} {
			err := bus.InTx(t.Context(), func(ctx context.Context, _ cap.Tx) error {
				wm := message.NewMessage(cap.NewID(), message.Payload(payload))
				wm.SetContext(ctx)
				if err := pub.Publish("t", wm); err != nil {
					t.Error(err)
				}
				return end
			})
			if !errors.Is(err, end) {
				t.Error(err)
			}
		}
		if got := in.messages(); len(got) != 1 {
			t.Errorf("%d messages came, want that of the commit alone", len(got))
		}
	})
}

func TestPublishWithoutATransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var in inbox
		bus := running(t, subscribe.To("t", in.handle))
		wm := message.NewMessage(cap.NewID(), message.Payload(payload))
		if err := capwm.NewPublisher(bus).Publish("t", wm); !errors.Is(err, cap.ErrNoTx) {
			t.Errorf("got %v, want cap.ErrNoTx", err)
		}
		if err := capwm.NewPublisher(bus, capwm.NoTx()).Publish("t", wm); err != nil {
			t.Error(err)
		}
		// With NoTx, a transaction in the context is used all the same.
		_ = bus.InTx(t.Context(), func(ctx context.Context, _ cap.Tx) error {
			other := message.NewMessage(cap.NewID(), nil)
			other.SetContext(ctx)
			if err := capwm.NewPublisher(bus, capwm.NoTx()).Publish("t", other); err != nil {
				t.Error(err)
			}
			return errors.New("no")
		})
		if got := in.messages(); len(got) != 1 || got[0].ID != wm.UUID {
			t.Errorf("got %v", got)
		}
	})
}

func TestWhatAMessageBecomes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var in inbox
		bus := running(t, subscribe.To("t", in.handle))
		pub := capwm.NewPublisher(bus, capwm.NoTx())
		wm := message.NewMessage(cap.NewID(), message.Payload(payload))
		wm.Metadata = message.Metadata{
			"name": "shop.Deleted", "Mixed": "grün", transport.HeaderKey: "7", transport.HeaderType: "Deleted",
			transport.HeaderSentTime: "never", transport.HeaderGroup: "other",
		}
		if err := pub.Publish("t", wm); err != nil {
			t.Fatal(err)
		}
		got := in.messages()
		if len(got) != 1 {
			t.Fatalf("%d messages came", len(got))
		}
		m := got[0]
		if m.ID != wm.UUID || string(m.Body) != payload {
			t.Errorf("id %q, body %q", m.ID, m.Body)
		}
		for k, want := range map[string]string{
			"name": "shop.Deleted", "Mixed": "grün", transport.HeaderKey: "7", transport.HeaderType: "Deleted", transport.HeaderID: wm.UUID,
		} {
			if m.Headers[k] != want {
				t.Errorf("header %s is %q, want %q", k, m.Headers[k], want)
			}
		}
		if m.Headers[transport.HeaderSentTime] == "never" || m.Headers[transport.HeaderGroup] != "" {
			t.Errorf("headers of the bus came from outside: %v", m.Headers)
		}
		if err := pub.Publish("t", wm); !errors.Is(err, cap.ErrDuplicate) {
			t.Errorf("the same UUID again: %v, want cap.ErrDuplicate", err)
		}
		if err := pub.Publish("t", nil); err == nil {
			t.Error("a nil message is taken")
		}
		wm = message.NewMessage("", message.Payload(strings.Repeat("x", 17<<20)))
		if err := pub.Publish("t", wm); err == nil || !strings.Contains(err.Error(), "MaxBodySize") {
			t.Errorf("a body that is too large: %v", err)
		}
		if err := pub.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A UUID that is none, and the id of a message that came and is passed on, become
// another id, the same one each time for a topic.
func TestDerivedIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var in inbox
		bus := running(t, subscribe.To("t", in.handle), subscribe.To("u", in.handle))
		pub := capwm.NewPublisher(bus, capwm.NoTx())
		came := cap.NewID()
		passedOn := func() *message.Message {
			wm := message.NewMessage(came, nil)
			wm.Metadata.Set(transport.HeaderID, came)
			wm.Metadata.Set(transport.HeaderTopic, "where it came from")
			return wm
		}
		for _, p := range []struct {
			topic string
			wm    *message.Message
			dup   bool
		}{
			{"t", message.NewMessage("01JZZZZZZZZZZZZZZZZZZZZZZZ", nil), false},
			{"t", message.NewMessage("01JZZZZZZZZZZZZZZZZZZZZZZZ", nil), true},
			{"t", passedOn(), false},
			{"u", passedOn(), false},
			{"u", passedOn(), true},
			{"t", message.NewMessage("", nil), false},
		} {
			if err := pub.Publish(p.topic, p.wm); errors.Is(err, cap.ErrDuplicate) != p.dup || !p.dup && err != nil {
				t.Errorf("%s to %s: %v", p.wm.UUID, p.topic, err)
			}
		}
		uuids := map[string]int{}
		for _, m := range in.messages() {
			if m.ID == came || m.Topic != m.Headers[transport.HeaderTopic] {
				t.Errorf("message %+v", m)
			}
			uuids[m.Headers[capwm.HeaderUUID]]++
		}
		if uuids["01JZZZZZZZZZZZZZZZZZZZZZZZ"] != 1 || uuids[came] != 2 || uuids[""] != 1 {
			t.Errorf("UUIDs of what came: %v", uuids)
		}
	})
}
