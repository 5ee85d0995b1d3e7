package subscribe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// replying lets a consumer answer by f, wherever its messages want it.
func replying(f func(ctx context.Context, out subscribe.Outgoing) error) func(*subscribe.ConsumerConfig) {
	return func(c *subscribe.ConsumerConfig) { c.Reply, c.AllowedReplies = f, []string{"#"} }
}

func wanting(topic string) map[string]string {
	return map[string]string{transport.HeaderReplyTo: topic}
}

// TestWithoutAnInboxTheAnswerIsWrittenBeforeTheAck: one that cannot be written is
// a failed attempt, and all that a message gets have one id.
func TestWithoutAnInboxTheAnswerIsWrittenBeforeTheAck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		var ids []string
		running(t, func(c *subscribe.ConsumerConfig) {
			onBroker(b)(c)
			replying(func(ctx context.Context, out subscribe.Outgoing) error {
				ids = append(ids, out.ID)
				if acked, _ := b.ended(); len(acked) == len(ids) {
					t.Errorf("acked %v before the answer was written", acked)
				}
				switch len(ids) {
				case 1:
					return errors.New("no disk")
				case 2, 3: // written, but the ack comes to nothing
					b.cut()
					<-ctx.Done()
				}
				return nil
			})(c)
		}, subscribe.Reply("t", func(context.Context, string) (string, error) { return "a", nil }, quick()))
		for _, id := range []string{"1", "2"} {
			b.put(&queued{msg: &transport.Message{ID: id, Topic: "t", Body: []byte(`""`), Headers: wanting("a")}})
			elapse(time.Hour)
		}
		if acked, _ := b.ended(); len(acked) != 2 || len(ids) != 5 {
			t.Fatalf("acked %v, answers %v", acked, ids)
		}
		for i, id := range ids {
			if _, err := storage.ParseID(id); err != nil || (id == ids[0]) != (i < 4) {
				t.Errorf("answers %v: %v", ids, err)
			}
		}
	})
}

// TestMessagesOfTwoTopicsMayShareAnID, as in the inbox: each has its own answer.
func TestMessagesOfTwoTopicsMayShareAnID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newRetryBroker()
		ids := map[string]bool{}
		running(t, func(c *subscribe.ConsumerConfig) {
			onBroker(b)(c)
			replying(func(_ context.Context, out subscribe.Outgoing) error { ids[out.ID] = true; return nil })(c)
		}, subscribe.Reply("t.*", func(context.Context, string) (string, error) { return "a", nil }, quick()))
		for _, topic := range []string{"t.one", "t.two"} {
			b.put(&queued{msg: &transport.Message{ID: "1", Topic: topic, Body: []byte(`""`), Headers: wanting("a")}})
			elapse(time.Minute)
		}
		if len(ids) != 2 {
			t.Errorf("answers have the ids %v", ids)
		}
	})
}

// TestAnAnswerWithoutATransactionCostsNoAttempt: it is the database's business.
func TestAnAnswerWithoutATransactionCostsNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &unbegun{Store: memstore.New(memstore.Config{})}
		sent := 0
		r := newRig(t, shared{store: store.Store}, func(c *subscribe.ConsumerConfig) {
			replying(func(ctx context.Context, _ subscribe.Outgoing) error {
				_, err := storage.TxFromContext(ctx)
				if err == nil {
					sent++
				}
				return err
			})(c)
			c.Storage, c.Policy.Count = store, 1
		}, subscribe.Reply("t", func(context.Context, string) (int, error) { return 1, nil })).start()
		if err := r.queue.Send(t.Context(), []*transport.Message{{ID: "1", Topic: "t", Body: []byte(`""`), Headers: wanting("a")}})[0]; err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		if rec := r.record(); rec.Retries != 0 || rec.Final || sent != 0 {
			t.Errorf("row with %d failed attempts, %q; %d answers", rec.Retries, rec.LastError, sent)
		}
		store.back.Store(true)
		elapse(10 * time.Second)
		if rec := r.record(); rec.Status != storage.Succeeded || rec.Retries != 0 || sent != 1 {
			t.Errorf("row %v with %d failed attempts; %d answers", rec.Status, rec.Retries, sent)
		}
	})
}

// TestAReplacedContextIsFoundBeforeTheWork: the answer would be lost.
func TestAReplacedContextIsFoundBeforeTheWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := running(t, func(c *subscribe.ConsumerConfig) { c.Policy.Count = 1 },
			subscribe.Reply("t", func(context.Context, string) (int, error) { runs++; return 1, nil },
				subscribe.With(func(next subscribe.Handler) subscribe.Handler {
					return subscribe.HandlerFunc(func(_ context.Context, m *transport.Message) error {
						return next.Handle(t.Context(), m) //nolint:contextcheck // the fault
					})
				})))
		r.send("t", "1", `""`)
		elapse(time.Minute)
		if rec := r.record(); runs != 0 || !rec.Final || !strings.Contains(rec.LastError, "another context") {
			t.Errorf("%d runs, %q", runs, rec.LastError)
		}
	})
}

func TestReplyIsCheckedAsTo(t *testing.T) {
	t.Parallel()
	err := subscribe.Reply[string, int]("", nil, subscribe.Group("")).Validate()
	for _, want := range []string{"the handler is nil", "topic is empty", "the name is empty", "reply_test.go:"} {
		if err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
