package integration

import (
	"os"
	"testing"

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
)

// A storage is a row of the matrix, a transport a column. Both are opened by an
// address, by the test and by the process that it kills.

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
	open  func(addr string) (tr transport.Transport, end func() error, err error)
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
	return []matrixTransport{{
		name: "rabbitmq",
		place: func(t *testing.T, version string) string {
			t.Helper()
			t.Cleanup(func() { deleteFromRabbit(t, version) })
			return testenv.RabbitMQ()
		},
		open: func(addr string) (transport.Transport, func() error, error) {
			tr := rabbitmq.New(rabbitmq.Config{URL: addr, Exchange: "gocap-matrix"})
			return tr, tr.Close, nil
		},
	}, {
		name:  "memqueue",
		place: func(*testing.T, string) string { return "" },
		open: func(string) (transport.Transport, func() error, error) {
			return memqueue.New(memqueue.Config{}), nothing, nil
		},
	}}
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
	(&rabbit{}).raw(t, func(ch *amqp091.Channel) {
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
