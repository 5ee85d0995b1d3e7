package rabbitmq_test

import (
	"fmt"
	"log/slog"
	"os"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"

	"github.com/capbus/gocap/transport/rabbitmq"
)

func ExampleNew() {
	tr := rabbitmq.New(rabbitmq.Config{
		URL:   "amqp://rabbit-1:5672/shop",
		Hosts: []string{"rabbit-2:5672"},
	})
	defer func() { _ = tr.Close() }() // after the bus has stopped
	fmt.Println(tr)
	fmt.Println(tr.ForVersion("v2").Traits().Destination)
	// Output:
	// rabbitmq rabbit-1:5672,rabbit-2:5672 shop cap.default.router
	// rabbit-1:5672,rabbit-2:5672 shop cap.default.router.v2
}

func ExampleFromWatermill() {
	theirs := wmamqp.NewDurableTopicConfig("amqp://shop:password@rabbit-1:5672/shop", "events", "")
	theirs.Exchange.Durable = true
	theirs.Queue.GenerateName = wmamqp.GenerateQueueNameTopicNameWithSuffix("shop") // gets the group
	tr := rabbitmq.New(rabbitmq.FromWatermill(theirs))
	fmt.Println(tr.Validate(), tr)
	// Output: <nil> rabbitmq rabbit-1:5672 shop events
}

// No setting shows a password, however it is printed.
func ExampleConfig_LogValue() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	log.Info("made", "rabbitmq", rabbitmq.Config{URL: "amqps://shop:password@rabbit-1/shop"}) //nolint:gosec // what must not be shown
	// Output:
	// level=INFO msg=made rabbitmq.destination="rabbit-1:5671 shop cap.default.router" rabbitmq.tls=true rabbitmq.queue=quorum rabbitmq.channels=8 rabbitmq.window=500 rabbitmq.confirm_timeout=30s
}
