package integration

import (
	"errors"
	"os"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/storage/mysql"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
	"github.com/capbus/gocap/transport/rabbitmq"
	"github.com/capbus/gocap/transport/sqlqueue"
	"github.com/capbus/gocap/transport/wmadapter"
)

// A storage is a row of the matrix, a transport a column. Both are opened by an
// address, by the test and by the process that it kills. Transports that lose
// messages, as Watermill's gochannel does, are none.

type matrixStorage struct {
	name  string
	place func(t *testing.T) (addr string) // gone after the test
	open  func(addr string) (s storage.Storage, end func() error, err error)
	// inProcess: it ends with its process, so nobody takes over from it.
	inProcess bool
}

type matrixTransport struct {
	name  string
	place func(t *testing.T, version string) (addr string) // what it makes is gone after the test
	open  func(addr, version string) (tr transport.Transport, end func() error, err error)
}

// matrixGroup is the only group.
const matrixGroup = "matrix"

func matrixStorages() []matrixStorage {
	return []matrixStorage{{
		name:  "memstore",
		place: func(*testing.T) string { return "" },
		open: func(string) (storage.Storage, func() error, error) {
			return memstore.New(memstore.Config{}), nothing, nil
		},
		inProcess: true,
	}, {
		name:  "sqlite",
		place: func(t *testing.T) string { t.Helper(); return file(t) },
		open: func(addr string) (storage.Storage, func() error, error) {
			return opening(sqlite.Open(addr, sqlite.Config{Synchronous: "NORMAL", GORM: silent()}))
		},
	}, {
		name:  "postgres",
		place: func(t *testing.T) string { t.Helper(); return postgresDatabase(t) },
		open: func(addr string) (storage.Storage, func() error, error) {
			return opening(postgres.Open(addr, postgres.Config{MaxConns: 6, GORM: silent()}))
		},
	}, {
		name:  "mariadb",
		place: func(t *testing.T) string { t.Helper(); return mariaDB(t).FormatDSN() },
		open: func(addr string) (storage.Storage, func() error, error) {
			return opening(mysql.Open(addr, mysql.Config{MaxConns: 6, GORM: silent()}))
		},
	}}
}

func matrixTransports() []matrixTransport {
	inRabbit := func(t *testing.T, version string) string {
		t.Helper()
		t.Cleanup(func() { deleteFromRabbit(t, version) })
		return testenv.RabbitMQ()
	}
	return []matrixTransport{{
		name:  "rabbitmq",
		place: inRabbit,
		open: func(addr, _ string) (transport.Transport, func() error, error) {
			tr := rabbitmq.New(rabbitmq.Config{URL: addr, Exchange: "gocap-matrix"})
			return tr, tr.Close, nil
		},
	}, {
		name:  "memqueue",
		place: func(*testing.T, string) string { return "" },
		open: func(string, string) (transport.Transport, func() error, error) {
			return memqueue.New(memqueue.Config{}), nothing, nil
		},
	}, {
		name:  "sqlqueue",
		place: func(t *testing.T, _ string) string { t.Helper(); return postgresDatabase(t) },
		open: func(addr, _ string) (transport.Transport, func() error, error) {
			tr := sqlqueue.New(sqlqueue.Config{DSN: addr})
			return tr, tr.Close, nil
		},
	}, {
		name:  "watermill-amqp",
		place: inRabbit,
		open:  openWatermillAMQP,
	}}
}

// openWatermillAMQP has one queue a group, with the names of transport/rabbitmq.
func openWatermillAMQP(addr, version string) (transport.Transport, func() error, error) {
	exchange, queue := "gocap-matrix."+version, matrixGroup+"."+version
	cfg := wmamqp.NewDurableTopicConfig(addr, exchange, queue)
	cfg.Exchange.Durable, cfg.Publish.ConfirmDelivery = true, true
	cfg.Queue.GenerateName = func(string) string { return queue }
	conn, err := wmamqp.NewConnection(cfg.Connection, watermill.NopLogger{})
	if err != nil {
		return nil, nil, err
	}
	pub, err := wmamqp.NewPublisherWithConnection(cfg, watermill.NopLogger{}, conn)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	tr := wmadapter.New(wmadapter.Config{
		Name: "watermill-amqp", Destination: exchange, Wildcards: true, Publisher: pub,
		Subscriber: func(string) (message.Subscriber, error) {
			return wmamqp.NewSubscriberWithConnection(cfg, watermill.NopLogger{}, conn)
		},
	})
	return tr, func() error { return errors.Join(tr.Close(), conn.Close()) }, nil
}

func nothing() error { return nil }

func silent() *gorm.Config { return &gorm.Config{Logger: logger.Discard} }

func opening(s *gormstore.Store, err error) (storage.Storage, func() error, error) {
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

func deleteFromRabbit(t *testing.T, version string) {
	t.Helper()
	(&rabbit{url: testenv.RabbitMQ()}).raw(t, func(ch *amqp091.Channel) {
		_, err := ch.QueueDelete(matrixGroup+"."+version, false, false, false)
		must(t, err)
		must(t, ch.ExchangeDelete("gocap-matrix."+version, false, false))
	})
}

// TestMatrix: storages and transports are swapped freely. With GOCAP_MATRIX=all
// every pair goes through the scenario, otherwise so many that each storage and
// each transport is among them.
func TestMatrix(t *testing.T) {
	t.Parallel()
	storages, transports := matrixStorages(), matrixTransports()
	for i, s := range storages {
		for j, tr := range transports {
			n := min(len(storages), len(transports))
			if os.Getenv("GOCAP_MATRIX") != "all" && i%n != j%n {
				continue
			}
			t.Run(s.name+"+"+tr.name, func(t *testing.T) {
				t.Parallel()
				runMatrix(t, s, tr)
			})
		}
	}
}
