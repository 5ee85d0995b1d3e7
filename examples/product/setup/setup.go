// Package setup is what the three programs have in common: the message, the
// flags, a database each, and a bus over RabbitMQ.
package setup

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/mysql"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/rabbitmq"
)

// Product is the body of the messages: which product it is about.
type Product struct{ ID int }

// Service is a program: its database, its broker, its bus.
type Service struct {
	Store  *gormstore.Store
	Broker *rabbitmq.Transport
	Bus    *cap.Bus
	// Version goes behind the names of exchange and queues.
	Version string

	name, db, url string
}

// Flags adds the flags that every program has. flag.Parse comes after.
func Flags(name string) *Service {
	s := &Service{name: name}
	flag.StringVar(&s.db, "db", name+".db", "SQLite `file`, or the address of a server: postgres://… or mysql://user:password@tcp(host:3306)/name")
	flag.StringVar(&s.url, "rabbitmq", cmp.Or(os.Getenv("GOCAP_RABBITMQ_URL"), "amqp://guest:guest@127.0.0.1:5672/"), "`address` of the broker")
	flag.StringVar(&s.Version, "version", "v1", "`name` behind those of exchange and queues; programs of one version hear each other")
	return s
}

// Open opens the database, makes the tables of the program, and makes its bus.
// Those of the bus are made when it starts.
func (s *Service) Open(opts cap.Options, tables ...any) (err error) {
	silent := &gorm.Config{Logger: logger.Discard}
	switch dsn, isMySQL := strings.CutPrefix(s.db, "mysql://"); {
	case isMySQL:
		s.Store, err = mysql.Open(dsn, mysql.Config{GORM: silent})
	case strings.Contains(s.db, "://"):
		s.Store, err = postgres.Open(s.db, postgres.Config{GORM: silent})
	default:
		s.Store, err = sqlite.Open(s.db, sqlite.Config{GORM: silent})
	}
	if err != nil {
		return err
	}
	if err := s.Store.DB().AutoMigrate(tables...); err != nil {
		return errors.Join(fmt.Errorf("tables: %w", err), s.Store.Close())
	}
	s.Broker = rabbitmq.New(rabbitmq.Config{URL: s.url, Exchange: "gocap.example"})
	opts.Storage, opts.Transport, opts.Version, opts.DefaultGroupName = s.Store, s.Broker, s.Version, s.name
	opts.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("program", s.name)
	opts.Registry = &subscribe.Registry{} // empty: the programs give their subscriptions
	opts.FailedRetryInterval = cmp.Or(opts.FailedRetryInterval, 2*time.Second)
	if s.Bus, err = cap.New(opts); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// Run starts the bus, does work, and goes on until Ctrl-C.
func (s *Service) Run(work func(ctx context.Context) error) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.Bus.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Bus.Stop(context.WithoutCancel(ctx))) }()
	if err := work(ctx); err != nil {
		return err
	}
	fmt.Println(s.name, "runs") // who starts the programs waits for it
	<-ctx.Done()
	return nil
}

// Close closes what Open has opened, after the bus has stopped.
func (s *Service) Close() error { return errors.Join(s.Broker.Close(), s.Store.Close()) }

// Main is the main function of a program.
func Main(run func() error) {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
