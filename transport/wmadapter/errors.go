package wmadapter

import (
	"errors"
	"fmt"

	"github.com/capbus/gocap/transport"
)

var (
	errClosed = fmt.Errorf("wmadapter: the transport is closed: %w", transport.ErrUnavailable)
	// errNotPublished is an unknown outcome: none of the contract's errors.
	errNotPublished = errors.New("wmadapter: Publish did not return within Config.SendTimeout")
	// errNotInHand answers an Ack or Nack that came too late.
	errNotInHand = errors.New("wmadapter: the delivery was given back: its receiver had ended, or the subscriber had taken it back")
	errEnded     = errors.New("a subscription ended by itself")
	errTimeout   = errors.New("it did not return in time")
	errExited    = errors.New("it ended its goroutine (runtime.Goexit)")
)

// panicError is a panic of foreign code.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panicked: %v\n%s", e.value, e.stack) }

// unavailable is for what a later call may find well again.
func unavailable(err error) error {
	if errors.Is(err, transport.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("wmadapter: %w: %w", transport.ErrUnavailable, err)
}

// refused is an answer that the same message would get for ever.
func refused(err error) error {
	return fmt.Errorf("wmadapter: %w: %w: %w", transport.ErrRejected, transport.ErrPermanent, err)
}
