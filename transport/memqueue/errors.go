package memqueue

import (
	"errors"
	"fmt"

	"github.com/capbus/gocap/transport"
)

var (
	errDisconnected = fmt.Errorf("memqueue: disconnected: %w", transport.ErrUnavailable)
	// errNotConfirmed is an unknown outcome: none of the contract's errors.
	errNotConfirmed = errors.New("memqueue: not acked by every group within the confirm timeout")
	// errNotInHand answers an Ack or Nack that came too late.
	errNotInHand = errors.New("memqueue: the delivery was given back: its receiver had left or was disconnected")
)

func errUnroutable(topic string) error {
	return fmt.Errorf("memqueue: topic %q: %w", topic, transport.ErrUnroutable)
}

func errNobody(group, topic string) error {
	return fmt.Errorf("memqueue: topic %q: group %q has no receiver: %w", topic, group, transport.ErrUnroutable)
}

func errLeft(group string) error {
	return fmt.Errorf("memqueue: group %q has no receiver any more: %w", group, transport.ErrUnavailable)
}

func errInvalid(err error) error {
	return fmt.Errorf("memqueue: %w: %w: %w", transport.ErrRejected, transport.ErrPermanent, err)
}
