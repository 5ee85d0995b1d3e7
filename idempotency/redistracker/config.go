package redistracker

import (
	"errors"
	"fmt"
	"time"
)

// Defaults of Config.
const (
	DefaultPrefix    = "cap:processed:"
	DefaultClaim     = 5 * time.Minute
	DefaultRetention = 30 * 24 * time.Hour
)

// Config configures a Tracker. The zero value is good.
type Config struct {
	// Prefix begins the names of all keys in Redis; the rest is the SHA-256 of the
	// key, in hexadecimal. Defaults to "cap:processed:".
	Prefix string

	// Claim is how long a key in progress is kept: the context of fn ends a tenth
	// before, and the attempt fails. When a process dies, its key is in progress for
	// as long. Whole milliseconds, at least 10. Defaults to 5 min.
	Claim time.Duration

	// Retention is how long a key that is done is remembered; then it is new
	// again. A message that has failed for good can be requeued for
	// Options.FailedMessageExpiredAfter (15 days). Whole milliseconds. Defaults to
	// 30 days.
	Retention time.Duration
}

// Validate reports every value that cannot be used.
func (c Config) Validate() error {
	var errs []error
	if c.Claim != 0 && c.Claim < 10*time.Millisecond {
		errs = append(errs, fmt.Errorf("redistracker: Config.Claim is %s, less than 10 ms; it must be longer than fn takes", c.Claim))
	}
	if c.Retention != 0 && c.Retention < time.Millisecond {
		errs = append(errs, fmt.Errorf("redistracker: Config.Retention is %s, less than 1 ms; 0 is the default of 30 days", c.Retention))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Claim == 0 {
		c.Claim = DefaultClaim
	}
	if c.Retention == 0 {
		c.Retention = DefaultRetention
	}
	return c
}
