package subscribe

import (
	"errors"
	"fmt"
	"time"
)

// control is an error by which a handler says how the message goes on.
type control struct {
	verb string
	wait time.Duration
	err  error
}

const (
	reject     = "rejected"
	retryAfter = "retry after"
	snooze     = "snooze"
)

func (c *control) Error() string {
	switch {
	case c.verb == snooze:
		return fmt.Sprintf("snooze %s", c.wait)
	case c.err == nil:
		return c.verb
	}
	return c.err.Error()
}

func (c *control) Unwrap() error { return c.err }

// Reject wraps an error so that the message is never tried again: it ends
// failed. errors.Is and errors.As see err. Reject(nil) rejects too: check err
// before.
func Reject(err error) error { return &control{verb: reject, err: err} }

// RetryAfter wraps an error so that the next attempt comes after d. The failed
// one counts, also when err is nil.
func RetryAfter(d time.Duration, err error) error {
	return &control{verb: retryAfter, wait: max(0, d), err: err}
}

// Snooze asks for the message again after d. It does not count as an attempt.
func Snooze(d time.Duration) error { return &control{verb: snooze, wait: max(0, d)} }

// asControl finds the control value in a handler's error, if there is one.
func asControl(err error) *control {
	var c *control
	if errors.As(err, &c) {
		return c
	}
	return nil
}
