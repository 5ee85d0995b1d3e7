package memtracker

import (
	"errors"
	"time"
)

// DefaultRetention is Config.Retention where it is 0.
const DefaultRetention = 24 * time.Hour

// Config configures a Tracker. The zero value is good.
type Config struct {
	// Retention is how long a key that is done is remembered; then it is new
	// again. Each takes its own length and some 100 bytes meanwhile. Defaults to
	// 24 h.
	Retention time.Duration
}

// Validate reports every value that cannot be used.
func (c Config) Validate() error {
	if c.Retention < 0 {
		return errors.New("memtracker: Config.Retention is negative; 0 is the default of 24 h")
	}
	return nil
}
