package rabbitmq

import (
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
)

var (
	errClosed = fmt.Errorf("rabbitmq: the transport is closed: %w", transport.ErrUnavailable)
	// errNotConfirmed is an unknown outcome: none of the contract's errors.
	errNotConfirmed = errors.New("rabbitmq: the broker did not confirm within Config.ConfirmTimeout")
	// errNotInHand answers an Ack or Nack that came too late.
	errNotInHand = errors.New("rabbitmq: the delivery was given back: its receiver had ended or was cut off")
	errURL       = errors.New("the URL is not an AMQP address; see Validate")
	errNoAnswer  = errors.New("the broker did not answer in time")
)

// unavailable is for what a later call may find well again.
func unavailable(err error) error {
	if errors.Is(err, transport.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("rabbitmq: %w: %w", transport.ErrUnavailable, err)
}

// refused is an answer that the same message would get for ever.
func refused(err error) error {
	return fmt.Errorf("rabbitmq: %w: %w: %w", transport.ErrRejected, transport.ErrPermanent, err)
}

// rejectedFor is the outcome of a message alone in its window when the broker
// closed the channel.
func rejectedFor(cause *amqp091.Error) error {
	err := fmt.Errorf("rabbitmq: %w: the broker closed the channel: %w", transport.ErrRejected, cause)
	if cause.Code == amqp091.PreconditionFailed { // too large, a property that is wrong
		return fmt.Errorf("%w: %w", transport.ErrPermanent, err)
	}
	return err
}

func errNacked() error {
	return fmt.Errorf("rabbitmq: %w: it nacked the message; a queue is full or cannot be reached now", transport.ErrRejected)
}

func errReturned(r amqp091.Return) error {
	return fmt.Errorf("rabbitmq: exchange %q, routing key %q: %w (%d %s)",
		r.Exchange, r.RoutingKey, transport.ErrUnroutable, r.ReplyCode, r.ReplyText)
}

func errBlocked(reason string) error {
	return fmt.Errorf("rabbitmq: %w: it blocks publishing (%s); see its alarms", transport.ErrUnavailable, reason)
}

// closeCause is the reason that the broker gave, or nil.
func closeCause(err error) *amqp091.Error {
	var e *amqp091.Error
	if errors.As(err, &e) && e.Server {
		return e
	}
	return nil
}
