package memqueue

import (
	"errors"
	"fmt"

	"github.com/capbus/gocap/transport"
)

var (
	errDisconnected = fmt.Errorf("memqueue: disconnected: %w", transport.ErrUnavailable)
	// errNotConfirmed is an unknown outcome: none of the contract's errors.
	errNotConfirmed = errors.New("memqueue: not confirmed within the confirm timeout")
	// errNotInHand answers an Ack or Nack that came too late.
	errNotInHand = errors.New("memqueue: the delivery was given back: its receiver had left or was disconnected")
)

func errUnroutable(topic string) error {
	return fmt.Errorf("memqueue: topic %q: %w", topic, transport.ErrUnroutable)
}

// errBusy is for a copy that has waited for its ack for the confirm timeout. It
// is no fault of the message, so it must cost no attempt: a backlog in front of
// slow handlers would fail for good otherwise.
func errBusy(group string) error {
	return fmt.Errorf("memqueue: group %q has not acked within the confirm timeout: %w", group, transport.ErrBusy)
}

func errLeft(group string) error {
	return fmt.Errorf("memqueue: group %q has no receiver any more: %w", group, transport.ErrUnavailable)
}

func errInvalid(err error) error {
	return fmt.Errorf("memqueue: %w: %w: %w", transport.ErrRejected, transport.ErrPermanent, err)
}
