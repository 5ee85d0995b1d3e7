package watermill

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/transport/wmadapter"
)

func TestNATS(t *testing.T) {
	t.Parallel()
	suite(t, openNATS, false)
}

func BenchmarkNATS(b *testing.B) { bench(b, openNATS) }

// openNATS has a stream of its own, and a durable consumer for each group and topic
// that it makes itself: one that watermill-nats made is deleted with its
// subscriber, and with it the place up to which the group has got.
func openNATS(tb testing.TB) wmadapter.Config {
	tb.Helper()
	return openNATSAt(tb, testenv.NATS())
}

func openNATSAt(tb testing.TB, url string) wmadapter.Config {
	tb.Helper()
	id, names := unit(), wmadapter.Names("-.", 200)
	again := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond)}
	conn, err := nats.Connect(url, again...)
	check(tb, err)
	js, err := conn.JetStream()
	check(tb, err)
	stream := "GOCAP-" + id
	_, err = js.AddStream(&nats.StreamConfig{Name: stream, Subjects: []string{"gocap." + id + ".>"}})
	check(tb, err)
	tb.Cleanup(func() {
		check(tb, js.DeleteStream(stream))
		conn.Close()
	})
	marshaler := wmnats.JSONMarshaler{} // headers of NATS take no line ends
	pub, err := wmnats.NewPublisher(wmnats.PublisherConfig{URL: url, NatsOptions: again, Marshaler: marshaler}, watermill.NopLogger{})
	check(tb, err)
	return wmadapter.Config{
		Name: "watermill-nats", Destination: "NATS " + stream, MaxMessage: 700_000, // base64 in 1 MB
		TopicName: func(topic string) string { return "gocap." + id + "." + names(topic) },
		Publisher: pub,
		Subscriber: wmadapter.PerTopic(func(group, subject string) (message.Subscriber, error) {
			name := wmadapter.Names("-", 60)(group + " " + subject)
			_, err := js.AddConsumer(stream, &nats.ConsumerConfig{
				Durable: name, DeliverSubject: "gocap-deliver." + id + "." + name, DeliverGroup: name, FilterSubject: subject,
				DeliverPolicy: nats.DeliverAllPolicy, AckPolicy: nats.AckExplicitPolicy, AckWait: 5 * time.Second,
				MaxAckPending: 1, // more would be pushed to who has one in hand
			})
			if err != nil {
				return nil, err
			}
			sub, err := wmnats.NewSubscriber(wmnats.SubscriberConfig{
				URL: url, NatsOptions: again, Unmarshaler: marshaler, QueueGroupPrefix: name, AckWaitTimeout: 5 * time.Second,
				JetStream: wmnats.JetStreamConfig{
					DurablePrefix: name,
					// Without ManualAck a message counts as acked when its time is over.
					SubscribeOptions: []nats.SubOpt{nats.ManualAck(), nats.AckExplicit()},
				},
			}, watermill.NopLogger{})
			if err != nil {
				return nil, err
			}
			return &leaving{Subscriber: sub, left: make(chan struct{})}, nil
		}),
		Check: func(ctx context.Context) error { return conn.FlushWithContext(ctx) },
	}
}

// leaving takes nothing more before its Subscriber closes. That of watermill-nats
// closes its channel whatever is being sent on it, which is a data race with a
// message that is received meanwhile.
type leaving struct {
	message.Subscriber

	left   chan struct{}
	leave  sync.Once
	relays sync.WaitGroup
}

func (l *leaving) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := l.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	l.relays.Go(func() {
		defer close(out)
		for {
			select {
			case wm, open := <-in:
				if !open {
					return
				}
				select {
				case out <- wm:
				case <-l.left:
					return // unanswered, it comes again
				}
			case <-l.left:
				return
			}
		}
	})
	return out, nil
}

func (l *leaving) Close() error {
	l.leave.Do(func() { close(l.left) })
	l.relays.Wait()
	return l.Subscriber.Close()
}
