package watermill
import (
 _ "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
 _ "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
 _ "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
 _ "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
 _ "github.com/twmb/franz-go/pkg/kfake"
 _ "github.com/jackc/pgx/v5/stdlib"
 _ "github.com/go-sql-driver/mysql"
 _ "github.com/capbus/gocap/transport/wmadapter"
 _ "github.com/capbus/gocap/transport/transporttest"
 _ "github.com/capbus/gocap/internal/testenv"
 _ "github.com/nats-io/nats.go"
 _ "github.com/IBM/sarama"
 _ "go.uber.org/goleak"
 _ "github.com/rabbitmq/amqp091-go"
)
