package sqlite

import (
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// Defaults of Config.
const (
	DefaultBusyTimeout = 5 * time.Second
	DefaultReaders     = 4
)

// Config configures Open. The zero value is good.
type Config struct {
	// TablePrefix and Binders are as in gormstore.Config.
	TablePrefix string
	Binders     []storage.TxBinder

	// BusyTimeout is how long a statement waits for a lock that another process
	// holds, and how long a write or a begin waits for the one writing
	// connection of this process, before it fails. Defaults to 5 s.
	BusyTimeout time.Duration

	// Synchronous is "FULL" or "NORMAL". With FULL every commit is on the disk
	// when it returns. With NORMAL commits are about three times as fast, the
	// file is never damaged, but the last commits before a power cut (not before
	// a mere crash of the process) may be gone: for messages that have been
	// acknowledged to a broker this is a loss. Defaults to "FULL".
	Synchronous string

	// Readers is the number of connections for reading. Defaults to 4.
	Readers int

	// GORM is the configuration of the *gorm.DB; its ConnPool and Dialector are
	// set by Open. With PrepareStmt, reads go to the writing connection, and
	// waiting for it is bounded by the statement's context alone. Defaults to
	// gorm's own defaults.
	GORM *gorm.Config
}

// Validate reports every value that cannot be used.
func (c Config) Validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf("sqlite: "+format, args...)) }
	if err := c.store(nil).Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.BusyTimeout < 0 || c.BusyTimeout > 0 && c.BusyTimeout < time.Millisecond {
		refuse("Config.BusyTimeout is %v, less than 1 ms", c.BusyTimeout)
	}
	if c.BusyTimeout > time.Hour {
		refuse("Config.BusyTimeout is %v, more than 1 h", c.BusyTimeout)
	}
	switch c.Synchronous {
	case "", "FULL", "NORMAL":
	default:
		refuse("Config.Synchronous is %q, neither FULL nor NORMAL", c.Synchronous)
	}
	if c.Readers < 0 {
		refuse("Config.Readers is %d, less than 0", c.Readers)
	}
	if c.GORM != nil && (c.GORM.ConnPool != nil || c.GORM.Dialector != nil) {
		refuse("Config.GORM has a ConnPool or a Dialector; Open makes them")
	}
	if c.GORM != nil && c.GORM.DryRun {
		refuse("Config.GORM is in DryRun mode")
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.BusyTimeout == 0 {
		c.BusyTimeout = DefaultBusyTimeout
	}
	if c.Synchronous == "" {
		c.Synchronous = "FULL"
	}
	if c.Readers == 0 {
		c.Readers = DefaultReaders
	}
	return c
}

// gormConfig copies GORM, which gorm.Open writes into.
func (c Config) gormConfig() *gorm.Config {
	if c.GORM == nil {
		return &gorm.Config{}
	}
	g := *c.GORM
	return &g
}

func (c Config) store(p *pool) gormstore.Config {
	g := gormstore.Config{TablePrefix: c.TablePrefix, Binders: c.Binders}
	if p != nil {
		g.Closer = p
	}
	return g
}
