package memqueue

import (
	"errors"
	"time"
)

// Config configures a Queue. The zero value is ready to use.
type Config struct {
	// ConfirmTimeout bounds how long Send waits for the groups, see Send.
	// Defaults to 30 s.
	ConfirmTimeout time.Duration
	// Linger is how long a group outlives its last receiver, so that a restart
	// of its consumers misses nothing: meanwhile Sends wait for a receiver to
	// come back. Negative: a group ends with its last receiver, and a declared
	// one waits for its first. Defaults to 5 s.
	Linger time.Duration
}

func (c Config) withDefaults() Config {
	if c.ConfirmTimeout == 0 {
		c.ConfirmTimeout = 30 * time.Second
	}
	if c.Linger == 0 {
		c.Linger = 5 * time.Second
	}
	return c
}

func (c Config) validate() error {
	if c.ConfirmTimeout < 0 {
		return errors.New("memqueue: ConfirmTimeout is negative; no Send could be confirmed")
	}
	return nil
}
