package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
)

// onChannel runs requests on a channel of their own, because the broker closes a
// channel when it refuses one.
func onChannel(ctx context.Context, c *conn, f func(ch *amqp091.Channel) error) error {
	return c.do(ctx, func() error {
		ch, err := c.Channel()
		if err != nil {
			return err
		}
		err = f(ch)
		if closeErr := ch.Close(); err == nil {
			err = closeErr
		}
		return err
	}, nil)
}

// declareExchange makes an exchange; nothing for the default one.
func (c Config) declareExchange(ctx context.Context, co *conn, name string) error {
	if name == "" {
		return nil
	}
	return onChannel(ctx, co, func(ch *amqp091.Channel) error { return c.exchangeOn(ch, name) })
}

func (c Config) exchangeOn(ch *amqp091.Channel, name string) error {
	e := c.AMQP.Exchange
	var err error
	switch {
	case name == "":
	case c.ExchangeAsIs:
		err = ch.ExchangeDeclarePassive(name, e.Type, e.Durable, e.AutoDeleted, e.Internal, false, e.Arguments)
	default:
		err = c.AMQP.TopologyBuilder.ExchangeDeclare(ch, name, c.AMQP)
	}
	if cause := closeCause(err); cause != nil && cause.Code == amqp091.PreconditionFailed {
		return fmt.Errorf("exchange %q is there with other settings; delete it, or set Config.ExchangeAsIs or Config.AMQP.Exchange accordingly: %w", name, err)
	} else if cause != nil && cause.Code == amqp091.AccessRefused && !c.ExchangeAsIs {
		return fmt.Errorf("exchange %q: the user may not declare it; if it is there, set Config.ExchangeAsIs: %w", name, err)
	} else if err != nil {
		return fmt.Errorf("exchange %q: %w", name, err)
	}
	return nil
}

// queueName is the queue of a group.
func (c Config) queueName(group string) string { return c.AMQP.Queue.GenerateName(group) }

// declareGroup makes the queue of a group and adds its bindings.
func (c Config) declareGroup(ctx context.Context, co *conn, src transport.Source) error {
	err := onChannel(ctx, co, func(ch *amqp091.Channel) error {
		queue := c.queueName(src.Group)
		if src.Retry != nil {
			if err := c.declareRetry(ch, queue, *src.Retry); err != nil {
				return err
			}
		}
		if err := c.queueOn(ch, queue, c.queueArguments(queue, src)); err != nil {
			return err
		}
		return c.bindOn(ch, queue, src)
	})
	return lasting(err)
}

// lasting tells an error that needs somebody to act from one that may pass.
func lasting(err error) error {
	if err == nil {
		return nil
	}
	var cause *amqp091.Error
	if errors.As(err, &cause) && cause.Server && (cause.Code == amqp091.PreconditionFailed || cause.Code == amqp091.AccessRefused || cause.Code == amqp091.NotAllowed) || errors.Is(err, errNoQueue) {
		return fmt.Errorf("rabbitmq: %w", err)
	}
	if errors.Is(err, transport.ErrUnavailable) {
		return err
	}
	return unavailable(err)
}

var errNoQueue = errors.New("the queue is not there, and Config.Queue is AsIs: create it")

func (c Config) queueOn(ch *amqp091.Channel, name string, args amqp091.Table) error {
	q := c.AMQP.Queue
	if c.Queue == AsIs {
		_, err := ch.QueueDeclarePassive(name, q.Durable, q.AutoDelete, q.Exclusive, false, nil)
		if cause := closeCause(err); cause != nil && cause.Code == amqp091.NotFound {
			return fmt.Errorf("queue %q: %w: %w", name, errNoQueue, err)
		}
		return err
	}
	_, err := ch.QueueDeclare(name, q.Durable, q.AutoDelete, q.Exclusive, false, args)
	return errQueue(name, err)
}

func errQueue(name string, err error) error {
	if err == nil {
		return nil
	}
	if cause := closeCause(err); cause != nil && cause.Code == amqp091.PreconditionFailed {
		return fmt.Errorf("queue %q is there with other settings; delete it once it is empty, set Config.Queue and Config.AMQP.Queue as they are, "+
			"or let Config.Queue be AsIs: %w", name, err)
	}
	return fmt.Errorf("queue %q: %w", name, err)
}

// queueArguments are those of the user, completed by kind, order and broker
// retry.
func (c Config) queueArguments(queue string, src transport.Source) amqp091.Table {
	args := c.kindArguments()
	if src.Ordered {
		args["x-single-active-consumer"] = true
	}
	if src.Retry != nil {
		args["x-dead-letter-exchange"] = "" // to the queue that the key names
		args["x-dead-letter-routing-key"] = retryQueue(queue)
		c.atLeastOnce(args)
	}
	maps.Copy(args, c.AMQP.Queue.Arguments)
	return args
}

func (c Config) kindArguments() amqp091.Table {
	if c.Queue == Quorum {
		return amqp091.Table{"x-queue-type": "quorum"}
	}
	return amqp091.Table{}
}

// bindOn adds bindings. What others of the group have bound stays: an instance
// cannot know what they subscribe to.
func (c Config) bindOn(ch *amqp091.Channel, queue string, src transport.Source) error {
	for _, topic := range src.Topics {
		exchange := c.AMQP.Exchange.GenerateName(topic)
		key := c.AMQP.QueueBind.GenerateRoutingKey(topic)
		if _, ours := c.AMQP.TopologyBuilder.(*wmamqp.DefaultTopologyBuilder); !ours && c.Queue != AsIs {
			params := wmamqp.BuildTopologyParams{Topic: topic, QueueName: queue, ExchangeName: exchange, RoutingKey: key}
			whole := c.AMQP
			whole.Queue.Arguments = c.queueArguments(queue, src)
			if err := c.AMQP.TopologyBuilder.BuildTopology(ch, params, whole, c.watermillLogger()); err != nil {
				return errQueue(queue, err)
			}
			continue
		}
		if exchange == "" {
			continue // every queue is bound to the default exchange by its name
		}
		if err := c.exchangeOn(ch, exchange); err != nil {
			return err
		}
		if err := ch.QueueBind(queue, key, exchange, false, c.AMQP.QueueBind.Arguments); err != nil {
			return fmt.Errorf("bind queue %q to exchange %q by %q: %w", queue, exchange, key, err)
		}
	}
	return nil
}

// Unbind takes topics from a group, for an operator: a start only adds bindings,
// so what nobody subscribes to any more keeps coming and is stored as unhandled.
// The group is the full name, with version ("coupon.v1"); topics are the
// patterns that were subscribed to. One that is not bound is no error.
func (t *Transport) Unbind(ctx context.Context, group string, topics ...string) error {
	c := t.cfg
	co, err := t.shared.consume.get(ctx)
	if err != nil {
		return err
	}
	return lasting(onChannel(ctx, co, func(ch *amqp091.Channel) error {
		queue := c.queueName(group)
		for _, topic := range topics {
			exchange := c.AMQP.Exchange.GenerateName(topic)
			if err := ch.QueueUnbind(queue, c.AMQP.QueueBind.GenerateRoutingKey(topic), exchange, c.AMQP.QueueBind.Arguments); err != nil {
				return fmt.Errorf("unbind queue %q from exchange %q by %q: %w", queue, exchange, topic, err)
			}
		}
		return nil
	}))
}

// retryTTL is a wait as the broker takes it: whole milliseconds.
func retryTTL(wait time.Duration) int64 { return max(1, wait.Milliseconds()) }
