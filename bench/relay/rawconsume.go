package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/transport"
)

// linger is how long an unfinished batch waits for more.
const linger = 2 * time.Millisecond

// consumeRaw stores, acks and handles batch by batch, and marks beside the next
// insert.
func consumeRaw(ctx context.Context, e *env) error {
	r, err := dialRaw(ctx, e)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.ch.Qos(e.o.prefetch, 0, false); err != nil {
		return err
	}
	in, err := r.ch.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	marks := make(chan [][16]byte, 1)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(marks)
		for left := e.o.rows; left > 0; {
			list, err := gather(ctx, in, min(left, batch))
			if err != nil {
				return err
			}
			handled, err := r.accept(ctx, list)
			if err != nil {
				return err
			}
			left -= len(list)
			select {
			case marks <- handled:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	g.Go(func() error {
		for list := range marks {
			if err := mark(ctx, r.marker, "received", list); err != nil {
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

// gather returns a full batch, or what has come for a while.
func gather(ctx context.Context, in <-chan amqp091.Delivery, most int) ([]amqp091.Delivery, error) {
	var list []amqp091.Delivery
	var late <-chan time.Time
	for len(list) < most {
		select {
		case d, ok := <-in:
			if !ok {
				return nil, errors.New("the broker has ended the consumer")
			}
			list = append(list, d)
			if late == nil {
				late = time.After(linger)
			}
		case <-late:
			return list, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return list, nil
}

// accept stores a batch in the inbox by one statement, acks it and calls the
// handler, which does nothing, for what was new.
func (r *raw) accept(ctx context.Context, list []amqp091.Delivery) ([][16]byte, error) {
	rows := make([][16]byte, len(list))
	messages, headers, bodies := make([][]byte, len(list)), make([][]byte, len(list)), make([][]byte, len(list))
	topics := make([]string, len(list))
	for i, d := range list {
		h := make(map[string]string, len(d.Headers))
		for k, v := range d.Headers {
			s, ok := v.(string)
			if !ok {
				return nil, fmt.Errorf("header %s is %T", k, v)
			}
			h[k] = s
		}
		text, err := json.Marshal(h)
		if err != nil {
			return nil, err
		}
		rows[i], messages[i], headers[i], bodies[i], topics[i] = ids.New(), []byte(h[transport.HeaderID]), text, d.Body, h[transport.HeaderTopic]
	}
	tag, err := r.reader.Exec(ctx, `INSERT INTO `+prefix+`received (id, version, group_name, subscriber, name, message_id, owner, headers, body,
			status, due_at, added_at, updated_at)
		SELECT id, 'v1', $1, 'raw', name, message, 1, headers, body, 0, clock_timestamp(), clock_timestamp(), clock_timestamp()
		FROM unnest($2::uuid[], $3::text[], $4::bytea[], $5::bytea[], $6::bytea[]) AS n (id, name, message, headers, body)
		ON CONFLICT (version, group_name, subscriber, name, message_id) DO NOTHING`, queue, rows, topics, messages, headers, bodies)
	if err != nil {
		return nil, err
	}
	if tag.RowsAffected() != int64(len(list)) { // none is redelivered here
		return nil, fmt.Errorf("%d of %d rows are new", tag.RowsAffected(), len(list))
	}
	if err := list[len(list)-1].Ack(true); err != nil {
		return nil, err
	}
	for _, d := range list {
		handle(d.Body)
	}
	return rows, nil
}

func handle([]byte) {}
