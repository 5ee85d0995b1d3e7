package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"
)

// batch is the most rows in one statement of the raw side.
const batch = 500

// row is a message of the raw side.
type row struct {
	id      [16]byte
	headers map[string]string
	body    []byte
}

// sent is a batch that awaits its confirmations.
type sent struct {
	ids      [][16]byte
	confirms []*amqp091.DeferredConfirmation
}

// relayRaw reads, publishes and marks beside each other, a batch each, on two
// connections to the database and one channel.
func relayRaw(ctx context.Context, e *env) error {
	r, err := dialRaw(ctx, e)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.ch.Confirm(false); err != nil {
		return err
	}
	returned := r.ch.NotifyReturn(make(chan amqp091.Return, 1))
	read, marks := make(chan []row, 1), make(chan sent, 1)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(read)
		return r.read(ctx, read)
	})
	g.Go(func() error {
		defer close(marks)
		for rows := range read {
			s, err := publish(r.ch, rows)
			if err != nil {
				return err
			}
			select {
			case marks <- s:
			case ret := <-returned:
				return fmt.Errorf("%s returned: %s", ret.MessageId, ret.ReplyText)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	g.Go(func() error {
		for s := range marks {
			if err := confirmed(ctx, s); err != nil {
				return err
			}
			if err := mark(ctx, r.marker, "published", s.ids); err != nil {
				return err
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	e.finished()
	return nil
}

// raw is the connections of the raw side.
type raw struct {
	reader, marker *pgx.Conn
	mq             *amqp091.Connection
	ch             *amqp091.Channel
}

func dialRaw(ctx context.Context, e *env) (*raw, error) {
	r := new(raw)
	var err error
	if r.reader, err = pgx.Connect(ctx, e.o.postgres); err == nil {
		if r.marker, err = pgx.Connect(ctx, e.o.postgres); err == nil {
			if r.mq, err = amqp091.Dial(e.o.rabbitmq); err == nil {
				r.ch, err = r.mq.Channel()
			}
		}
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *raw) close() {
	for _, c := range []*pgx.Conn{r.reader, r.marker} {
		if c != nil {
			_ = c.Close(context.Background())
		}
	}
	if r.mq != nil {
		_ = r.mq.Close()
	}
}

// read hands over the due rows, batch by batch, with a cursor.
func (r *raw) read(ctx context.Context, to chan<- []row) error {
	var at time.Time
	var seq int64
	for {
		rows, err := r.reader.Query(ctx, `SELECT id, headers, body, due_at, seq FROM `+prefix+`published WHERE version = 'v1' AND owner IS NULL
			AND due_at <= now() AND (due_at, seq) > ($1, $2) ORDER BY due_at, seq LIMIT $3`, at, seq, batch)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, func(c pgx.CollectableRow) (m row, err error) {
			var headers []byte
			if err = c.Scan(&m.id, &headers, &m.body, &at, &seq); err == nil {
				err = json.Unmarshal(headers, &m.headers)
			}
			return m, err
		})
		if err != nil || len(list) == 0 {
			return err
		}
		select {
		case to <- list:
		case <-ctx.Done():
			return ctx.Err()
		}
		if len(list) < batch {
			return nil
		}
	}
}

// publish sends a batch, mandatory and persistent.
func publish(ch *amqp091.Channel, rows []row) (s sent, err error) {
	s.ids, s.confirms = make([][16]byte, len(rows)), make([]*amqp091.DeferredConfirmation, len(rows))
	for i, m := range rows {
		headers := make(amqp091.Table, len(m.headers))
		for k, v := range m.headers {
			headers[k] = v
		}
		s.ids[i] = m.id
		s.confirms[i], err = ch.PublishWithDeferredConfirm(exchange, topic, true, false, amqp091.Publishing{
			Headers: headers, MessageId: uuid(m.id), DeliveryMode: amqp091.Persistent, Body: m.body,
		})
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

func confirmed(ctx context.Context, s sent) error {
	for _, c := range s.confirms {
		if ok, err := c.WaitContext(ctx); err != nil {
			return err
		} else if !ok {
			return errors.New("the broker refused a message")
		}
	}
	return nil
}

// mark settles rows as sent or handled, to be kept for a day.
func mark(ctx context.Context, c *pgx.Conn, table string, list [][16]byte) error {
	tag, err := c.Exec(ctx, `UPDATE `+prefix+table+` SET status = 2, due_at = NULL, owner = NULL, updated_at = clock_timestamp(),
		expires_at = clock_timestamp() + interval '1 day' WHERE id = ANY($1::uuid[]) AND expires_at IS NULL`, list)
	if err == nil && tag.RowsAffected() != int64(len(list)) {
		err = fmt.Errorf("%d of %d rows marked", tag.RowsAffected(), len(list))
	}
	return err
}

func uuid(id [16]byte) string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
