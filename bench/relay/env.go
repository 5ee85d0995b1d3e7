package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/rabbitmq"
)

const (
	prefix   = "relay_"
	exchange = "gocap-relay"
	topic    = "relay"
	group    = "gocap-relay"
	queue    = group + ".v1" // of the group, in the version that is the default
)

// env is the tables and the queue that both sides have, and a look at them that
// is neither's.
type env struct {
	o     options
	store *gormstore.Store
	pg    *pgx.Conn
	mq    *amqp091.Connection
	ch    *amqp091.Channel

	finished func() // called by a side the moment all is done
	took     time.Duration
}

func newEnv(ctx context.Context, o options) (*env, error) {
	e := &env{o: o}
	if o.queue != "classic" && o.queue != "quorum" {
		return nil, fmt.Errorf("-queue is %q; give classic or quorum", o.queue)
	}
	var err error
	if e.pg, err = pgx.Connect(ctx, o.postgres); err != nil {
		return nil, err
	}
	if e.store, err = postgres.Open(o.postgres, postgres.Config{TablePrefix: prefix}); err != nil {
		return nil, errors.Join(err, e.pg.Close(ctx))
	}
	if e.mq, err = amqp091.Dial(o.rabbitmq); err != nil {
		return nil, errors.Join(err, e.store.Close(), e.pg.Close(ctx))
	}
	if e.ch, err = e.mq.Channel(); err != nil {
		return nil, errors.Join(err, e.close(ctx))
	}
	return e, nil
}

// remove takes tables, queue and exchange away; what is not there is no error.
func (e *env) remove(ctx context.Context) error {
	err := e.store.MigrateDown(ctx, 0)
	_, qerr := e.ch.QueueDelete(queue, false, false, false)
	return errors.Join(err, qerr, e.ch.ExchangeDelete(exchange, false, false))
}

func (e *env) close(ctx context.Context) error {
	var err error
	if e.ch != nil {
		err = e.remove(ctx)
	}
	return errors.Join(err, e.mq.Close(), e.store.Close(), e.pg.Close(ctx))
}

// config is that of our transport; the raw side finds what it declares.
func (e *env) config() rabbitmq.Config {
	c := rabbitmq.Config{URL: e.o.rabbitmq, Exchange: exchange, Queue: rabbitmq.Classic}
	if e.o.queue == "quorum" {
		c.Queue = rabbitmq.Quorum
	}
	return c
}

// renew makes tables and queue anew.
func (e *env) renew(ctx context.Context) error {
	if err := e.remove(ctx); err != nil {
		return err
	}
	if err := e.store.Migrate(ctx); err != nil {
		return err
	}
	t := rabbitmq.New(e.config())
	err := t.Declare(ctx, transport.Source{Group: queue, Topics: []string{topic}})
	return errors.Join(err, t.Close())
}

// settleDown leaves no work of the filling to the measured run.
func (e *env) settleDown(ctx context.Context) error {
	for _, text := range []string{"VACUUM (ANALYZE) " + prefix + "published", "VACUUM (ANALYZE) " + prefix + "received", "CHECKPOINT"} {
		if _, err := e.pg.Exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// body is a JSON string.
func (e *env) body() []byte {
	return []byte(`"` + strings.Repeat("a", max(e.o.bytes-2, 0)) + `"`)
}

// fillTable leaves what a stopped instance leaves behind.
func (e *env) fillTable(ctx context.Context) error {
	_, err := e.pg.Exec(ctx, `INSERT INTO `+prefix+`published (id, version, name, headers, body, status, due_at, added_at, updated_at)
		SELECT id, 'v1', $1, convert_to(json_build_object('cap-msg-id', id::text, 'cap-msg-name', $1::text, 'cap-corr-id', id::text,
			'cap-corr-seq', '0', 'cap-msg-type', 'string', 'cap-senttime', '2026-01-02T03:04:05.123456789Z')::text, 'UTF8'),
			$2, 0, clock_timestamp(), clock_timestamp(), clock_timestamp()
		FROM (SELECT ('01990000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id FROM generate_series(1, $3::int) AS n) AS i`,
		topic, e.body(), e.o.rows)
	return err
}

// fillQueue leaves what a stopped consumer finds.
func (e *env) fillQueue(ctx context.Context) error {
	ch, err := e.mq.Channel()
	if err != nil {
		return err
	}
	defer ch.Close() //nolint:errcheck // all is confirmed
	if err := ch.Confirm(false); err != nil {
		return err
	}
	for left := e.o.rows; left > 0; left -= batch {
		rows := make([]row, min(left, batch))
		for i := range rows {
			id := ids.New()
			text := uuid(id)
			rows[i] = row{id: id, headers: map[string]string{
				transport.HeaderID: text, transport.HeaderTopic: topic, transport.HeaderCorrelationID: text, transport.HeaderCorrelation: "0",
				transport.HeaderType: "string", transport.HeaderSentTime: "2026-01-02T03:04:05.123456789Z",
			}, body: e.body()}
		}
		sent, err := publish(ch, rows)
		if err != nil {
			return err
		}
		if err := confirmed(ctx, sent); err != nil {
			return err
		}
	}
	return nil
}

// queued is how many messages wait in the queue.
func (e *env) queued() (int, error) {
	q, err := e.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	return q.Messages, err
}

// unsettled tells whether a table has rows that are not final.
func (e *env) unsettled(ctx context.Context, table string) (is bool, err error) {
	err = e.pg.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM `+prefix+table+` WHERE expires_at IS NULL)`).Scan(&is)
	return is, err
}

func (e *env) succeeded(ctx context.Context, table string) error {
	var n, of int
	err := e.pg.QueryRow(ctx, `SELECT count(*) FILTER (WHERE status = 2 AND due_at IS NULL AND expires_at > now()), count(*) FROM `+prefix+table).Scan(&n, &of)
	if err == nil && (n != e.o.rows || of != n) {
		err = fmt.Errorf("%d of %d rows have succeeded, want %d", n, of, e.o.rows)
	}
	return err
}

func (e *env) inQueue(want int) error {
	n, err := e.queued()
	if err == nil && n != want {
		err = fmt.Errorf("%d messages in the queue, want %d", n, want)
	}
	return err
}

func (e *env) checkSent(ctx context.Context) error {
	return errors.Join(e.succeeded(ctx, "published"), e.inQueue(e.o.rows))
}

func (e *env) checkHandled(ctx context.Context) error {
	return errors.Join(e.succeeded(ctx, "received"), e.inQueue(0))
}
