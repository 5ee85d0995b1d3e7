// Package sqlqueue makes a PostgreSQL database the broker, for services that have
// nothing else. Tested with PostgreSQL 15; it needs 13 or later, with encoding
// UTF8.
//
// It stands on watermill-sql: sending goes through its Publisher, receiving
// through its Subscriber, with schema and offset adapters of this package.
//
// # Tables
//
// A message is one row, and one narrow row for each group that takes its topic
// (a delivery). Both are written by the statement that sends, so that it is known
// whether anybody takes the message, and a group has its own place without an
// offset: what is there is what it has not acked. An ack deletes the delivery, and
// with the last one the message. A transaction that commits later than another,
// or stays open, here or elsewhere, hides nothing and stops nobody.
//
// Groups and the patterns that they take are rows, too. A start only adds to
// them: Unbind and DropGroup are for the operator. A group that nobody serves
// keeps what it takes, see Config.MaxAge.
//
// # Receivers
//
// A call of Receive is a row with a lease. It takes deliveries by writing its
// number into them, so that receivers of a group compete, and nothing is locked
// while a handler runs. When it ends its row goes, and when its process is killed
// the row runs out (Config.Lease): what it had not acked is then free for others.
//
// A receiver looks for messages when a Send of the same Transport has stored some
// for its group, shortly after it has found some, and else after waits that double
// up to Config.PollInterval. Nobody is notified through the database.
//
// # Connections
//
// No connection is held while nobody works. A Send uses one for each statement,
// a Receive at most three at one moment: to look, to store answers, to renew the
// lease; and now and then one Receive of a Transport another one, to delete what
// nobody needs. They come from a pool of its own (Config.DSN, at most
// Config.MaxConns) or from a given one (Config.DB); with fewer, even with one, they
// wait for each other, and leases may run out when the pool is shared with what
// keeps its connections for long. Statements keep nothing in a session, so PgBouncer
// in transaction mode may be in between.
package sqlqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/transport"
)

const defaultVersion = "v1"

// endTimeout bounds what a Receive does after its deliver has returned,
// closeTimeout Close.
const (
	endTimeout   = 4 * time.Second
	closeTimeout = 5 * time.Second
)

// Transport is a database that is connected to when it is needed. All methods may
// be called concurrently. Close it after the bus has stopped.
type Transport struct {
	*core

	version string
}

var (
	_ transport.Transport = (*Transport)(nil)
	_ transport.Declarer  = (*Transport)(nil)
	_ transport.Versioned = (*Transport)(nil)
	_ message.Publisher   = (*Transport)(nil)
)

// New returns a Transport for version v1; a bus of another version makes its own
// of it (ForVersion). It does not check the configuration, see Validate, and
// opens nothing.
func New(cfg Config) *Transport {
	c := &core{cfg: cfg.withDefaults(), given: cfg, receivers: map[*receiver]struct{}{}}
	c.tables = c.cfg.tables()
	return &Transport{core: c, version: defaultVersion}
}

// ForVersion returns the Transport whose messages go to groups of that version
// alone. It shares pool and tables, and is closed with the one it is made from.
func (t *Transport) ForVersion(version string) transport.Transport {
	if version == "" {
		version = defaultVersion
	}
	return &Transport{core: t.core, version: version}
}

// Validate returns every problem of the configuration.
func (t *Transport) Validate() error { return t.given.validate() }

// Traits returns those of every Transport.
func (t *Transport) Traits() transport.Traits {
	return transport.Traits{
		Name:         "sqlqueue",
		Destination:  t.cfg.destination(t.version),
		Ordered:      true,
		SingleActive: true,
		Routing:      true,
		Wildcards:    true,
		MaxTopic:     transport.MaxTopicBytes,
		MaxMessage:   t.cfg.MaxMessageBytes,
	}
}

// Check connects if need be, makes the tables the first time, and looks into one.
// It returns an error that wraps transport.ErrUnavailable while the database is
// away.
func (t *Transport) Check(ctx context.Context) error {
	if err := t.ready(ctx); err != nil {
		return err
	}
	_, err := t.generation(ctx)
	return lasting(err)
}

// Close ends the Receives that run and, if it is the Transport's own, the pool,
// within a few seconds even if the database does not answer. Sends and Receives
// that are under way get transport.ErrUnavailable.
func (t *Transport) Close() error {
	c := t.core
	c.mu.Lock()
	c.closed = true
	for r := range c.receivers {
		r.lose(errClosed)
	}
	c.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		c.ended.Wait()
		close(ended)
	}()
	var err error
	select {
	case <-ended:
	case <-time.After(closeTimeout):
		err = errors.New("sqlqueue: close: a Receive has not ended: its deliver does not return")
	}
	if db := c.db; db != nil && c.cfg.DB == nil { // set before the Transport was closed, if at all
		err = errors.Join(err, db.Close())
	}
	return err
}

// LogValue shows the settings without user and password.
func (t *Transport) LogValue() slog.Value { return t.given.LogValue() }

// String is as LogValue.
func (t *Transport) String() string {
	return fmt.Sprintf("sqlqueue %s", t.cfg.destination(t.version))
}

// GoString is as String.
func (t *Transport) GoString() string { return t.String() }
