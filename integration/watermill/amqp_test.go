package watermill

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/transport/wmadapter"
)

func TestAMQP(t *testing.T) {
	t.Parallel()
	suite(t, openAMQP, false)
}

func BenchmarkAMQP(b *testing.B) { bench(b, openAMQP) }

// openAMQP has an exchange of its own and one queue a group, whatever its topics:
// so patterns work, and a message that matches several comes once.
func openAMQP(tb testing.TB) wmadapter.Config {
	tb.Helper()
	exchange := "gocap-wm-" + unit()
	cfg := func(group string) wmamqp.Config {
		c := wmamqp.NewDurableTopicConfig(testenv.RabbitMQ(), exchange, exchange+"."+wmadapter.Names(".-", 200)(group))
		c.Exchange.Durable = true
		c.Publish.ConfirmDelivery = true
		c.Publish.ChannelPoolSize = 0 // with a pool, publishers block for ever after a lost connection
		return c
	}
	conn, err := wmamqp.NewConnection(cfg("").Connection, watermill.NopLogger{})
	check(tb, err)
	pub, err := wmamqp.NewPublisherWithConnection(cfg(""), watermill.NopLogger{}, conn)
	check(tb, err)
	queues := make(chan string, 1000)
	tb.Cleanup(func() {
		check(tb, conn.Close())
		close(queues)
		deleteAMQP(tb, exchange, queues)
	})
	return wmadapter.Config{
		Name: "watermill-amqp", Destination: "RabbitMQ " + exchange, Wildcards: true, Subscriptions: 3, MaxTopic: 255,
		Publisher: pub,
		Subscriber: func(group string) (message.Subscriber, error) {
			c := cfg(group)
			queues <- c.Queue.GenerateName("")
			return wmamqp.NewSubscriberWithConnection(c, watermill.NopLogger{}, conn)
		},
	}
}

func deleteAMQP(tb testing.TB, exchange string, queues <-chan string) {
	tb.Helper()
	raw, err := amqp091.Dial(testenv.RabbitMQ())
	check(tb, err)
	defer func() { check(tb, raw.Close()) }()
	ch, err := raw.Channel()
	check(tb, err)
	for queue := range queues {
		_, err := ch.QueueDelete(queue, false, false, false)
		check(tb, err)
	}
	check(tb, ch.ExchangeDelete(exchange, false, false))
}
