package rabbitmq_test

import (
	"fmt"
	"sync"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/rabbitmq"
)

// BenchmarkPublish compares Send with the least that a publisher can do: one
// channel, confirmations awaited once a batch, nothing checked. One operation is
// one message of 256 bytes into a queue that nobody reads.
func BenchmarkPublish(b *testing.B) {
	const batch = 500
	for name, kind := range map[string]rabbitmq.QueueKind{"classic": rabbitmq.Classic, "quorum": rabbitmq.Quorum} {
		b.Run(name+"/amqp091", func(b *testing.B) { benchRaw(b, kind, batch) })
		for _, senders := range []int{1, 4} {
			b.Run(fmt.Sprintf("%s/senders=%d", name, senders), func(b *testing.B) { benchPublish(b, kind, batch, senders) })
		}
	}
}

func benchQueue(b *testing.B, kind rabbitmq.QueueKind) (*tidy, string) {
	b.Helper()
	exchange := "gocap-test-" + newID()
	tr := open(b, rabbitmq.Config{Queue: kind, Exchange: exchange})
	if err := tr.Declare(b.Context(), transport.Source{Group: "gocap-test-" + newID(), Topics: []string{"bench"}}); err != nil {
		b.Fatal(err)
	}
	return tr, exchange
}

func benchPublish(b *testing.B, kind rabbitmq.QueueKind, batch, senders int) {
	b.Helper()
	tr, _ := benchQueue(b, kind)
	body := make([]byte, 256)
	b.ResetTimer()
	var wg sync.WaitGroup
	work := make(chan int)
	for range senders {
		wg.Go(func() {
			for n := range work {
				msgs := make([]*transport.Message, n)
				for i := range msgs {
					id := newID()
					msgs[i] = &transport.Message{ID: id, Topic: "bench", Headers: map[string]string{transport.HeaderID: id, transport.HeaderTopic: "bench"}, Body: body}
				}
				for _, err := range tr.Send(b.Context(), msgs) {
					if err != nil {
						b.Error(err)
					}
				}
			}
		})
	}
	for left := b.N; left > 0; left -= batch {
		work <- min(left, batch)
	}
	close(work)
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}

func benchRaw(b *testing.B, kind rabbitmq.QueueKind, batch int) {
	b.Helper()
	_, exchange := benchQueue(b, kind)
	r := rawDial(b, brokerURL())
	defer r.close()
	body := make([]byte, 256)
	r.on(func(ch *amqp091.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		b.ResetTimer()
		for left := b.N; left > 0; left -= batch {
			var confirms []*amqp091.DeferredConfirmation
			for range min(left, batch) {
				id := newID()
				dc, err := ch.PublishWithDeferredConfirm(exchange, "bench", true, false, amqp091.Publishing{
					MessageId: id, DeliveryMode: amqp091.Persistent, Body: body,
					Headers: amqp091.Table{transport.HeaderID: id, transport.HeaderTopic: "bench"},
				})
				if err != nil {
					return err
				}
				confirms = append(confirms, dc)
			}
			for _, dc := range confirms {
				if !dc.Wait() {
					b.Error("not confirmed")
				}
			}
		}
		b.StopTimer()
		return nil
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}
