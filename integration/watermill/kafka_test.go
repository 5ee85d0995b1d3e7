package watermill

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/capbus/gocap/transport/wmadapter"
)

func TestKafka(t *testing.T) {
	t.Parallel()
	suite(t, openKafka, false)
}

func BenchmarkKafka(b *testing.B) { bench(b, openKafka) }

// openKafka has a broker in memory. Each topic of a group is a consumer group: as
// one, its members would take turns in joining, seconds each.
func openKafka(tb testing.TB) wmadapter.Config {
	tb.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(1))
	check(tb, err)
	tb.Cleanup(cluster.Close)
	send := wmkafka.DefaultSaramaSyncPublisherConfig()
	send.Producer.RequiredAcks = sarama.WaitForAll
	send.Producer.Idempotent = true
	send.Net.MaxOpenRequests = 1
	send.Metadata.Retry.Backoff = 100 * time.Millisecond
	pub, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{
		Brokers: cluster.ListenAddrs(), Marshaler: wmkafka.DefaultMarshaler{}, OverwriteSaramaConfig: send,
	}, watermill.NopLogger{})
	check(tb, err)
	return wmadapter.Config{
		Name: "watermill-kafka", Destination: "kfake", MaxMessage: 900_000, // of sarama's 1 MB
		TopicName: wmadapter.Names("-.", 249),
		Publisher: pub,
		Subscriber: wmadapter.PerTopic(func(group, name string) (message.Subscriber, error) {
			c := wmkafka.DefaultSaramaSubscriberConfig()
			c.Consumer.Offsets.Initial = sarama.OffsetOldest // else a new group misses what is there
			c.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
			c.Metadata.Retry.Backoff = 100 * time.Millisecond
			return wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
				Brokers: cluster.ListenAddrs(), Unmarshaler: wmkafka.DefaultMarshaler{}, OverwriteSaramaConfig: c,
				ConsumerGroup: group + " " + name,
			}, watermill.NopLogger{})
		}),
	}
}
