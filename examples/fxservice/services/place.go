package services

import (
	"net/url"
	"path/filepath"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
	"github.com/capbus/gocap/transport/rabbitmq"
)

// Place is where services keep their data, and what moves their messages.
type Place struct {
	Open      func(service string) (*gormstore.Store, error)
	Transport transport.Transport
	Close     func() error // of the transport
	Version   string       // goes behind the names of queues and exchange; v1 if it is empty
}

// Servers is a PostgreSQL database, in which each service has a schema of its
// own, and RabbitMQ.
func Servers(dsn, amqp string) Place {
	broker := rabbitmq.New(rabbitmq.Config{URL: amqp, Exchange: "gocap.fxservice"})
	return Place{
		Open: func(service string) (*gormstore.Store, error) {
			u, err := url.Parse(dsn)
			if err != nil {
				return nil, err
			}
			q := u.Query()
			q.Set("search_path", service)
			u.RawQuery = q.Encode()
			store, err := postgres.Open(u.String(), postgres.Config{GORM: &gorm.Config{Logger: logger.Discard}})
			if err != nil {
				return nil, err
			}
			return store, store.DB().Exec("CREATE SCHEMA IF NOT EXISTS " + service).Error
		},
		Transport: broker,
		Close:     broker.Close,
	}
}

// Files is a folder, in which each service has an SQLite database, and a queue in
// this process. Nothing else is needed.
func Files(dir string) Place {
	return Place{
		Open: func(service string) (*gormstore.Store, error) {
			return sqlite.Open(filepath.Join(dir, service+".db"), sqlite.Config{GORM: &gorm.Config{Logger: logger.Discard}})
		},
		Transport: memqueue.New(memqueue.Config{}),
		Close:     func() error { return nil },
	}
}
