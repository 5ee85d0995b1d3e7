package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/rabbitmq"
)

// sweep drains with each pair of SendWindow and BatchSize, by turns.
func (d drainer) sweep(ctx context.Context, rows int, pairs string, runs int) error {
	rates := map[string][]float64{}
	list := strings.Split(pairs, ",")
	for range runs {
		for _, pair := range list {
			if _, err := fmt.Sscanf(pair, "%d/%d", &d.window, &d.batch); err != nil {
				return fmt.Errorf("%q: give SendWindow/BatchSize: %w", pair, err)
			}
			rate, err := d.one(ctx, rows)
			if err != nil {
				return err
			}
			rates[pair] = append(rates[pair], rate)
		}
	}
	for _, pair := range list {
		r := slices.Sorted(slices.Values(rates[pair]))
		fmt.Printf("%12s: %7.0f messages/s (median of %d; %.0f to %.0f)\n", pair, r[len(r)/2], runs, r[0], r[len(r)-1])
	}
	return nil
}

// name is that of the queue and of the exchange in the broker.
const name = "gocap-drain"

// broker is RabbitMQ with a queue that nobody reads.
type broker struct {
	transport.Transport // alone, so that a bus takes no other ability of it

	mq  *rabbitmq.Transport
	url string
	s   *sink
}

func newBroker(ctx context.Context, url string, s *sink) (*broker, error) {
	mq := rabbitmq.New(rabbitmq.Config{URL: url, Exchange: name, Queue: rabbitmq.Classic})
	b := &broker{mq, mq, url, s}
	if err := mq.Declare(ctx, transport.Source{Group: name, Topics: []string{"drain"}, Window: 1}); err != nil {
		return nil, errors.Join(err, mq.Close())
	}
	return b, nil
}

// Send counts what is confirmed.
func (b *broker) Send(ctx context.Context, msgs []*transport.Message) []error {
	errs := b.Transport.Send(ctx, msgs)
	if err := errors.Join(errs...); err != nil {
		fmt.Println("not sent:", err)
		return errs
	}
	return b.s.Send(ctx, msgs)
}

// close takes the queue and the exchange away.
func (b *broker) close() error {
	err := b.mq.Close()
	conn, derr := amqp091.Dial(b.url)
	if derr != nil {
		return errors.Join(err, derr)
	}
	defer conn.Close() //nolint:errcheck // it is not used any more
	ch, derr := conn.Channel()
	if derr != nil {
		return errors.Join(err, derr)
	}
	_, qerr := ch.QueueDelete(name, false, false, false)
	return errors.Join(err, qerr, ch.ExchangeDelete(name, false, false))
}
